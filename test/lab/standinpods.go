package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

const (
	kubeletPort    = 10250
	heartbeatEvery = 10 * time.Second // as in kubelet
	leaseSeconds   = 40
)

// standinKubelet plays kubelet and container runtime of one node: it connects the pods bound to the
// node by the real CNI plugin, runs a process for each of their containers, and reports their
// status. It pulls no images and mounts no volumes.
type standinKubelet struct {
	lab    *Lab
	node   *Node
	client *kubernetes.Clientset
	log    *slog.Logger

	mu   sync.Mutex
	pods map[types.UID]*standinPodWorker
	done sync.WaitGroup
}

// RunKubelet plays the kubelet of this node until ctx ends. Running pods continue; the next one on
// the node adopts them.
func (l *Lab) RunKubelet(ctx context.Context, name string, log *slog.Logger) error {
	node, err := l.nodeByName(name)
	if err != nil {
		return err
	}

	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return fmt.Errorf("run kubelet of %s: %w", name, err)
	}

	config.QPS = -1

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("run kubelet of %s: %w", name, err)
	}

	k := &standinKubelet{lab: l, node: node, client: client, log: log, pods: map[types.UID]*standinPodWorker{}}
	if err := k.run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("run kubelet of %s: %w", name, err)
	}

	return nil
}

func (k *standinKubelet) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if err := os.MkdirAll(k.dir(), 0o755); err != nil {
		return err
	}

	stop, err := k.serveLogs()
	if err != nil {
		return err
	}
	defer stop()

	pods := informer.New(k.client.CoreV1().Pods(""), informer.Options{
		Name: "pods", Example: &corev1.Pod{}, RetryMax: time.Second, Log: k.log,
		Select: func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.node.Name).String()
		},
	})

	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.seen(ctx, o) },
		UpdateFunc: func(_, o any) { k.seen(ctx, o) },
		DeleteFunc: func(o any) { k.gone(o) },
	})
	if err != nil {
		return err
	}

	go pods.Run(ctx.Done())

	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return context.Cause(ctx)
	}

	if err := k.sweep(ctx); err != nil {
		return err
	}

	k.heartbeats(ctx)
	cancel()
	k.done.Wait()

	return nil
}

// dir returns the directory of the kubelet's records. It is outside the node's run directory, where
// the agent has its own records of pods.
func (k *standinKubelet) dir() string { return k.lab.path(filepath.Join("kubelets", k.node.Name)) }

// seen passes the newest state of a pod to its worker, and starts a worker for a new pod. A pod
// with the same name and another UID replaces a deleted one.
func (k *standinKubelet) seen(ctx context.Context, o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || ctx.Err() != nil {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	for uid, w := range k.pods {
		if w.key == key(pod) && uid != pod.UID {
			w.deleted()
		}
	}

	w := k.pods[pod.UID]
	if w == nil {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			if pod.DeletionTimestamp == nil {
				return // it has ended before this kubelet started
			}
		}

		w = newStandinPodWorker(k, pod)
		k.pods[pod.UID] = w
		k.done.Go(func() {
			w.run(ctx)
			k.mu.Lock()
			defer k.mu.Unlock()

			delete(k.pods, pod.UID)
		})
	}

	w.update(pod)
}

// gone notifies the worker that its pod was deleted, by force or at its own request.
func (k *standinKubelet) gone(o any) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}

	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if w := k.pods[pod.UID]; w != nil {
		w.deleted()
	}
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// sweep removes the pods of an earlier kubelet of this node that were deleted since.
func (k *standinKubelet) sweep(ctx context.Context) error {
	records, err := filepath.Glob(filepath.Join(k.dir(), "*.json"))
	if err != nil {
		return err
	}

	for _, path := range records {
		record, err := readPodRecord(path)
		if err != nil {
			return err
		}
		// Asks the API server, not the informer, before removing a running pod.
		pod, err := k.client.CoreV1().Pods(record.Namespace).Get(ctx, record.Name, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil && string(pod.UID) == record.UID:
			continue // its worker handles it
		}

		k.log.Info("pod is gone", "pod", record.Namespace+"/"+record.Name)

		if err := k.tearDown(ctx, record, 0); err != nil {
			k.log.Error("take pod down", "pod", record.Namespace+"/"+record.Name, "error", err)
		}
	}

	return nil
}

// heartbeats reports the node as ready and renews its Lease until ctx ends. As with a real kubelet,
// a node with an old Lease is NotReady.
func (k *standinKubelet) heartbeats(ctx context.Context) {
	began := metav1.Now()

	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()

	for {
		if err := errors.Join(k.reportNode(ctx, began), k.renewLease(ctx)); err != nil && ctx.Err() == nil {
			k.log.Warn("report node", "error", err)
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *standinKubelet) reportNode(ctx context.Context, began metav1.Time) error {
	status := corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandinKubelet", Message: "the lab's stand-in kubelet runs",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: began,
		}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: kube.Version() + "-standin", ContainerRuntimeVersion: "standin://1", OperatingSystem: "linux", Architecture: runtime.GOARCH,
		},
	}

	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}

	_, err = k.client.CoreV1().Nodes().Patch(ctx, k.node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")

	return err
}

func (k *standinKubelet) renewLease(ctx context.Context) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), int32(leaseSeconds)

	lease, err := leases.Get(ctx, k.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.node.Name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})

		return err
	}

	if err != nil {
		return err
	}

	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})

	return err
}

// podRecord is the state that outlives the kubelet: the data for removing the pod, and its
// addresses.
type podRecord struct {
	Namespace, Name, UID string
	HostNetwork          bool
	IPs                  []netip.Addr
}

func readPodRecord(path string) (podRecord, error) {
	var r podRecord

	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}

	if err != nil {
		return r, fmt.Errorf("read record of pod: %s: %w", path, err)
	}

	return r, nil
}

func (k *standinKubelet) recordPath(uid string) string { return filepath.Join(k.dir(), uid+".json") }

func (k *standinKubelet) writeRecord(r podRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}

	return atomicfile.Write(k.recordPath(r.UID), b, 0o644)
}

// labPod returns the pod for the plugin's caller.
func (k *standinKubelet) labPod(r podRecord) *Pod {
	return &Pod{Namespace: r.Namespace, Name: r.Name, Node: k.node.Name, UID: r.UID, Netns: k.lab.podNetns(r.Namespace, r.Name), IPs: r.IPs}
}

// containerFile returns the path of a container's log or process record.
func (k *standinKubelet) containerFile(uid, container, suffix string) string {
	return filepath.Join(k.dir(), uid+"."+container+suffix)
}

// containersOf returns the names of the containers that have a process record.
func (k *standinKubelet) containersOf(uid string) ([]string, error) {
	records, err := filepath.Glob(k.containerFile(uid, "*", ".pid"))
	if err != nil {
		return nil, err
	}

	var names []string
	for _, r := range records {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(r), uid+"."), ".pid"))
	}

	return names, nil
}
