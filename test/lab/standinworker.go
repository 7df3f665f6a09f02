package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// standinPodWorker runs one pod from its binding to its end.
type standinPodWorker struct {
	k       *standinKubelet
	key     string
	pod     *corev1.Pod // newest state, owned by the worker's goroutine
	record  podRecord
	wired   bool
	exits   chan containerExit
	updates chan *corev1.Pod // holds the newest state only
	gone    chan struct{}    // closed when the object is deleted

	containers map[string]*standinContainer
	reported   string // last reported status
}

// standinContainer is a container of a pod, run as a process.
type standinContainer struct {
	spec     corev1.Container
	running  *process.Process // nil: not running
	started  metav1.Time
	restarts int32
	last     *corev1.ContainerStateTerminated
	ended    bool      // permanently
	again    time.Time // time of the next start
	ours     bool      // it is the lab's server
}

type containerExit struct {
	name    string
	process *process.Process
	code    int
}

const maxBackoff = 30 * time.Second

func newStandinPodWorker(k *standinKubelet, pod *corev1.Pod) *standinPodWorker {
	w := &standinPodWorker{
		k: k, key: key(pod), pod: pod, exits: make(chan containerExit, 16), updates: make(chan *corev1.Pod, 1), gone: make(chan struct{}),
		record:     podRecord{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), HostNetwork: pod.Spec.HostNetwork},
		containers: map[string]*standinContainer{},
	}
	for _, c := range pod.Spec.Containers {
		w.containers[c.Name] = &standinContainer{spec: c}
	}

	return w
}

// update must be called with the kubelet's lock held.
func (w *standinPodWorker) update(pod *corev1.Pod) {
	select {
	case <-w.updates:
	default:
	}

	w.updates <- pod
}

// deleted must be called with the kubelet's lock held.
func (w *standinPodWorker) deleted() {
	select {
	case <-w.gone:
	default:
		close(w.gone)
	}
}

// run works until the pod is deleted or ctx ends.
func (w *standinPodWorker) run(ctx context.Context) {
	log := w.k.log.With("pod", w.key)

	retry := time.NewTimer(0)
	defer retry.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case pod := <-w.updates:
			w.pod = pod
		case exit := <-w.exits:
			w.exited(exit)
		case <-w.gone:
		case <-retry.C:
		}

		done, err := w.sync(ctx)
		if done || ctx.Err() != nil {
			return
		}

		wait := w.untilRestart()

		if err != nil {
			log.Warn("sync pod", "error", err)

			wait = time.Second
		}

		retry.Reset(wait)
	}
}

func (w *standinPodWorker) isGone() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// sync brings the pod closer to its object, and reports whether it is finished.
func (w *standinPodWorker) sync(ctx context.Context) (done bool, err error) {
	switch {
	case w.isGone():
		return true, w.k.tearDown(ctx, w.record, 0)
	case w.pod.DeletionTimestamp != nil:
		grace := 30 * time.Second
		if s := w.pod.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}

		if err := w.k.tearDown(ctx, w.record, grace); err != nil {
			return false, err
		}

		now := int64(0)

		err := w.k.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.pod.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, err
		}

		return true, nil
	case len(w.pod.Spec.InitContainers) > 0:
		return false, w.report(ctx, "StandinKubelet", "the lab's stand-in kubelet runs no init containers")
	}

	if !w.wired {
		if err := w.wire(ctx); err != nil {
			return false, errors.Join(err, w.report(ctx, "FailedCreatePodSandBox", err.Error()))
		}

		w.wired = true
		w.k.log.Info("pod wired", "pod", w.key, "addresses", w.record.IPs)
	}

	err = w.startContainers(ctx)

	return false, errors.Join(err, w.report(ctx, "", ""))
}

// wire creates the pod's network namespace and calls the plugin, or checks the interface from an
// earlier kubelet of this node.
func (w *standinPodWorker) wire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	k := w.k
	if w.record.HostNetwork {
		w.record.IPs = k.node.Addresses()
		return k.writeRecord(w.record)
	}

	if old, err := readPodRecord(k.recordPath(w.record.UID)); err == nil && len(old.IPs) > 0 {
		if err = k.lab.check(ctx, k.node, k.labPod(old)); err == nil {
			w.record = old
			return w.adopt()
		}

		k.log.Warn("pod is wired again: CHECK failed", "pod", w.key, "error", err)

		if err := k.tearDown(ctx, old, 0); err != nil {
			return err
		}
	}
	// Written before the steps that need cleanup.
	if err := k.writeRecord(w.record); err != nil {
		return err
	}

	p := k.labPod(w.record)
	if _, err := os.Stat(netns.Path(p.Netns)); err != nil {
		if err := netns.Create(p.Netns); err != nil {
			return err
		}
	}
	// The task of the loopback plugin.
	if err := netns.Do(p.Netns, func() error { return setUp("lo") }); err != nil {
		return err
	}

	addrs, err := k.lab.attach(ctx, k.node, p)
	if err != nil {
		return errors.Join(err, k.lab.detach(ctx, k.node, p))
	}

	w.record.IPs = addrs

	return k.writeRecord(w.record)
}

// adopt takes over the processes of an earlier kubelet.
func (w *standinPodWorker) adopt() error {
	names, err := w.k.containersOf(w.record.UID)
	if err != nil {
		return err
	}

	for _, name := range names {
		p, err := process.Load(w.k.containerFile(w.record.UID, name, ".pid"))
		if err != nil {
			return err
		}

		c := w.containers[name]
		if c == nil || !p.Alive() {
			continue
		}

		c.running, c.started = p, metav1.Now()

		for _, s := range w.pod.Status.ContainerStatuses {
			if s.Name == name {
				c.restarts = s.RestartCount
				if s.State.Running != nil {
					c.started = s.State.Running.StartedAt
				}
			}
		}

		_, c.ours = w.k.argv(w.pod, c.spec)
		w.watch(name, p)
	}

	return nil
}

// watch notifies the worker of the end of the process.
func (w *standinPodWorker) watch(name string, p *process.Process) {
	go func() {
		code, _ := p.Wait(context.Background()) // never fails, as its context never ends
		w.exits <- containerExit{name, p, code}
	}()
}

func (w *standinPodWorker) exited(e containerExit) {
	c := w.containers[e.name]
	if c == nil || c.running != e.process {
		return
	}

	now := metav1.Now()
	c.running = nil

	c.last = &corev1.ContainerStateTerminated{ExitCode: int32(max(e.code, 0)), StartedAt: c.started, FinishedAt: now, Reason: "Completed"}
	if e.code != 0 {
		c.last.Reason = "Error"
	}

	if e.code < 0 { // a signal, or an unknown status
		c.last.ExitCode = 137
	}

	switch policy := w.pod.Spec.RestartPolicy; {
	case policy == corev1.RestartPolicyNever, policy == corev1.RestartPolicyOnFailure && c.last.ExitCode == 0:
		c.ended = true
	default:
		backoff := min(time.Second<<min(c.restarts, 10), maxBackoff)
		c.again = now.Add(backoff)
	}
}

// untilRestart returns the time until the next restart of a container.
func (w *standinPodWorker) untilRestart() time.Duration {
	wait := time.Hour

	for _, c := range w.containers {
		if c.running == nil && !c.ended && w.wired {
			wait = min(wait, max(time.Until(c.again), 10*time.Millisecond))
		}
	}

	return wait
}

func (w *standinPodWorker) startContainers(ctx context.Context) error {
	var errs []error

	for name, c := range w.containers {
		if c.running != nil || c.ended || time.Now().Before(c.again) {
			continue
		}

		if err := w.start(ctx, name, c); err != nil {
			errs = append(errs, fmt.Errorf("start container %s: %w", name, err))
			c.again = time.Now().Add(time.Second)
		}
	}

	return errors.Join(errs...)
}

func (w *standinPodWorker) start(ctx context.Context, name string, c *standinContainer) error {
	argv, ours := w.k.argv(w.pod, c.spec)

	ns := w.k.lab.podNetns(w.pod.Namespace, w.pod.Name)
	if w.record.HostNetwork {
		ns = w.k.node.Netns
	}

	log := w.k.containerFile(w.record.UID, name, ".log")

	offset := int64(0)
	if info, err := os.Stat(log); err == nil {
		offset = info.Size()
	}

	p, err := process.Start(process.Spec{
		Argv: argv, Env: environment(w.pod, c.spec, w.record.IPs), Netns: ns, Log: log, Record: w.k.containerFile(w.record.UID, name, ".pid"),
	})
	if err != nil {
		return err
	}

	if ours {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()

		err := p.Await(ctx, name, func() error {
			b, err := os.ReadFile(log)
			if err == nil && (int64(len(b)) < offset || !strings.Contains(string(b[offset:]), "ready")) {
				err = errors.New("not listening yet")
			}

			return err
		})
		if err != nil {
			return errors.Join(err, p.Stop(0))
		}
	}

	if c.last != nil {
		c.restarts++
	}

	c.running, c.started, c.ours = p, metav1.Now(), ours
	w.watch(name, p)

	return nil
}

// argv returns the program of a container: its command if this machine has it, else the lab's
// server on the container's declared ports.
func (k *standinKubelet) argv(pod *corev1.Pod, c corev1.Container) (argv []string, ours bool) {
	if given := slices.Concat(c.Command, c.Args); len(given) > 0 {
		if _, err := exec.LookPath(given[0]); err == nil {
			return given, false
		}
	}

	var tcp, udp []string

	for _, p := range c.Ports {
		address := ":" + strconv.Itoa(int(p.ContainerPort))
		switch p.Protocol {
		case corev1.ProtocolUDP:
			udp = append(udp, address)
		case corev1.ProtocolTCP, "":
			tcp = append(tcp, address)
		}
	}

	if len(tcp)+len(udp) == 0 && pod.Spec.Containers[0].Name == c.Name && !pod.Spec.HostNetwork {
		tcp = []string{":80"}
	}

	return k.lab.trafficArgv([]string{"http", "-name", pod.Name, "-tcp", strings.Join(tcp, ","), "-udp", strings.Join(udp, ",")}), true
}

// environment returns the container's environment, from literal values and the most common fields.
func environment(pod *corev1.Pod, c corev1.Container, addrs []netip.Addr) []string {
	env := []string{"HOSTNAME=" + pod.Name}

	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			switch e.ValueFrom.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			case "spec.nodeName":
				value = pod.Spec.NodeName
			case "status.podIP":
				if len(addrs) > 0 {
					value = addrs[0].String()
				}
			}
		}

		env = append(env, e.Name+"="+value)
	}

	return env
}

// tearDown ends the pod's processes, calls the plugin, and removes namespace and records. It is
// idempotent.
func (k *standinKubelet) tearDown(ctx context.Context, r podRecord, grace time.Duration) error {
	names, err := k.containersOf(r.UID)
	if err != nil {
		return err
	}

	var errs []error

	for _, name := range names {
		p, err := process.Load(k.containerFile(r.UID, name, ".pid"))
		if err == nil {
			err = p.Stop(grace)
		}

		errs = append(errs, err)
	}

	if !r.HostNetwork {
		p := k.labPod(r)
		if _, err := os.Stat(netns.Path(p.Netns)); err == nil {
			errs = append(errs, killInside([]string{p.Netns}))
		}

		errs = append(errs, k.lab.detach(ctx, k.node, p), netns.Delete(p.Netns))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take pod %s/%s down: %w", r.Namespace, r.Name, err)
	}

	files, err := filepath.Glob(filepath.Join(k.dir(), r.UID+".*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}

	return err
}

// report patches the pod's status. reason and message explain why the pod is not ready.
func (w *standinPodWorker) report(ctx context.Context, reason, message string) error {
	status := w.status(reason, message)

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.pod.UID}, "status": status})
	if err != nil || string(patch) == w.reported {
		return err
	}

	_, err = w.k.client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // replaced by another pod
	}

	if err == nil {
		w.reported = string(patch)
	}

	return err
}

func (w *standinPodWorker) status(reason, message string) corev1.PodStatus {
	n := w.k.node
	status := corev1.PodStatus{
		Phase: corev1.PodPending, HostIP: n.IP4.String(), HostIPs: hostIPs(n),
		StartTime: &w.pod.CreationTimestamp,
	}
	ready, ended, failed := len(w.containers) > 0, true, false

	since := w.pod.CreationTimestamp
	for _, spec := range w.pod.Spec.Containers {
		c := w.containers[spec.Name]
		s := corev1.ContainerStatus{
			Name: spec.Name, Image: spec.Image, ImageID: "standin://" + spec.Image, RestartCount: c.restarts,
			ContainerID: "standin://" + string(w.pod.UID) + "." + spec.Name,
		}
		up := c.running != nil

		s.Ready, s.Started = up, &up
		switch {
		case up:
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.started}

			s.LastTerminationState.Terminated = c.last
			if since.Before(&c.started) {
				since = c.started
			}
		case c.ended:
			s.State.Terminated = c.last
			failed = failed || c.last.ExitCode != 0
		case c.last != nil:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "the container ended and will be restarted"}
			s.LastTerminationState.Terminated = c.last
		default:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: message}
		}

		if c.last != nil && since.Before(&c.last.FinishedAt) {
			since = c.last.FinishedAt
		}

		ready, ended = ready && up, ended && c.ended

		status.ContainerStatuses = append(status.ContainerStatuses, s)
	}

	if w.wired {
		status.Phase = corev1.PodRunning
		for _, a := range w.record.IPs {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a.String()})
		}

		status.PodIP = w.record.IPs[0].String()
	}

	switch {
	case ended && failed:
		status.Phase = corev1.PodFailed
	case ended:
		status.Phase = corev1.PodSucceeded
	}

	for _, c := range []struct {
		kind corev1.PodConditionType
		is   bool
	}{
		{corev1.PodScheduled, true},
		{corev1.PodReadyToStartContainers, w.wired},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready},
	} {
		condition := corev1.PodCondition{Type: c.kind, Status: corev1.ConditionTrue, LastTransitionTime: since}
		if !c.is {
			condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, reason, message
		}

		status.Conditions = append(status.Conditions, condition)
	}

	return status
}
