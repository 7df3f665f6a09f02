package kubelets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

const (
	flowsNamespace = "flows"
	flowsServer    = "server"
	flowsPort      = 8080
	// flowsPatience is how long a client waits for a connection, and at the end for missing replies.
	flowsPatience = time.Minute
)

// servers are what flows connect to: a pod on the second node, its Service, and a host outside.
type servers struct {
	pod4, pod6, service, nodePort, outside netip.AddrPort
}

// flow is an established connection whose client sends a number every 100 ms.
type flow struct {
	name string
	to   netip.AddrPort
	pod  string           // name of the client's pod, or "":
	host *process.Process // the client on a host
	log  string           // of the client on a host
}

// phase is the time from a moment to the next phase.
type phase struct {
	name  string
	began time.Time
}

// startServers starts the servers in a namespace of their own, and waits until the pod is ready.
func (c *Cluster) startServers(ctx context.Context) (*servers, error) {
	core := c.client.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flowsNamespace}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}

	err := c.await(ctx, "the namespace's service account", func() error {
		_, err := core.ServiceAccounts(flowsNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}

	if _, err := c.lab.Serve(ctx, "ext", "flows-outside", "-tcp", fmt.Sprintf(":%d", flowsPort)); err != nil {
		return nil, err
	}

	if err := c.trafficPod(ctx, flowsServer, c.lab.Node(2), "serve", "-tcp", fmt.Sprintf(":%d", flowsPort), "-name", flowsServer); err != nil {
		return nil, err
	}

	service, err := core.Services(flowsNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: flowsServer},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": flowsServer},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(flowsPort)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	s := &servers{
		service:  netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), 80),
		nodePort: netip.AddrPortFrom(c.lab.Node(1).IP4, uint16(service.Spec.Ports[0].NodePort)),
		outside:  netip.AddrPortFrom(netip.MustParseAddr(lab.ExtIP4), flowsPort),
	}

	return s, c.await(ctx, "the server", func() error {
		p, err := core.Pods(flowsNamespace).Get(ctx, flowsServer, metav1.GetOptions{})
		if err != nil {
			return err
		}

		for _, ip := range p.Status.PodIPs {
			at, err := netip.ParseAddrPort(net.JoinHostPort(ip.IP, strconv.Itoa(flowsPort)))
			if err != nil {
				return err
			}

			if at.Addr().Is4() {
				s.pod4 = at
			} else {
				s.pod6 = at
			}
		}

		if !s.pod4.IsValid() || !s.pod6.IsValid() {
			return fmt.Errorf("the server's addresses are %v", p.Status.PodIPs)
		}

		return unready(p)
	})
}

// trafficPod creates a pod on that node that runs `ovnlab traffic` once.
func (c *Cluster) trafficPod(ctx context.Context, name string, on *lab.Node, args ...string) error {
	_, err := c.client.CoreV1().Pods(flowsNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: on.Name}, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "traffic", Image: trafficImage, Args: args}},
		},
	}, metav1.CreateOptions{})

	return err
}

// startFlows starts a flow of each kind and waits until they are established. Names of a round are
// unique.
func (c *Cluster) startFlows(ctx context.Context, round string, s *servers) ([]*flow, error) {
	var out []*flow

	hold := func(to netip.AddrPort) []string {
		return []string{"hold", to.String(), "-duration", "2h", "-timeout", flowsPatience.String()}
	}
	for _, f := range []struct {
		name string
		on   int
		to   netip.AddrPort
	}{{"pod-to-pod-4", 1, s.pod4}, {"pod-to-pod-6", 3, s.pod6}, {"pod-to-service", 3, s.service}, {"pod-to-outside", 2, s.outside}} {
		name := round + "-" + f.name
		if err := c.trafficPod(ctx, name, c.lab.Node(f.on), hold(f.to)...); err != nil {
			return nil, err
		}

		out = append(out, &flow{name: f.name, pod: name, to: f.to})
	}

	for _, f := range []struct {
		name, on string
		to       netip.AddrPort
	}{{"outside-to-nodeport", "ext", s.nodePort}, {"host-to-outside", c.lab.Node(3).Name, s.outside}} {
		name := round + "-" + f.name

		p, err := c.lab.Spawn(f.on, name, append([]string{filepath.Join(c.opts.BinDir, labProgram), "traffic"}, hold(f.to)...)...)
		if err != nil {
			return nil, err
		}

		out = append(out, &flow{name: f.name, host: p, log: c.path("log/" + name + ".log"), to: f.to})
	}

	for _, f := range out {
		if err := c.await(ctx, "flow "+f.name, func() error { return c.established(ctx, f) }); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// clientOf returns the process of the flow's client.
func (c *Cluster) clientOf(ctx context.Context, f *flow) (int, error) {
	if f.host != nil {
		return f.host.PID, nil
	}

	p, err := c.client.CoreV1().Pods(flowsNamespace).Get(ctx, f.pod, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}

	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
		return 0, fmt.Errorf("pod %s does not run: %s", f.pod, p.Status.Phase)
	}

	found, err := processesOf(p.Status.ContainerStatuses[0].ContainerID)
	if err != nil {
		return 0, err
	}

	if len(found) != 1 {
		return 0, fmt.Errorf("pod %s has %d processes", f.pod, len(found))
	}

	return strconv.Atoi(slices.Collect(maps.Keys(found))[0])
}

// established returns nil if the client's host has the connection.
func (c *Cluster) established(ctx context.Context, f *flow) error {
	pid, err := c.clientOf(ctx, f)
	if err != nil {
		return err
	}

	out, err := c.lab.Exec(ctx, "central", "nsenter", "--target", strconv.Itoa(pid), "--net", "ss", "-Htn", "state", "established", "dst", f.to.String())
	if err == nil && strings.TrimSpace(string(out)) == "" {
		err = fmt.Errorf("no connection to %s", f.to)
	}

	return err
}

// stopFlows ends all flows, prints what each received, and returns an error for each that lost a
// number.
func (c *Cluster) stopFlows(ctx context.Context, flows []*flow, phases []phase) error {
	var errs []error

	for _, f := range flows {
		report, err := c.stopFlow(ctx, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("flow %s: %w", f.name, err))
			continue
		}

		c.step("flow %-20s %5d numbers sent, %5d answered, longest gap %4d ms%s", f.name, report.Sent, report.Received, report.MaxGapMS, stalled(report.Stalls, phases))

		if report.Error != "" || report.Lost != 0 || report.Received == 0 {
			errs = append(errs, fmt.Errorf("flow %s was lost: %+v", f.name, report))
		}
	}

	return errors.Join(errs...)
}

// stalled returns the stalls with the phase in which each began.
func stalled(stalls []traffic.Stall, phases []phase) string {
	var b strings.Builder

	for _, s := range stalls {
		during, began := "", s.End.Add(-time.Duration(s.MS)*time.Millisecond)
		for _, p := range phases {
			if p.began.Before(began) {
				during = p.name
			}
		}

		fmt.Fprintf(&b, "; %d ms (%s)", s.MS, during)
	}

	return b.String()
}

func (c *Cluster) stopFlow(ctx context.Context, f *flow) (traffic.HoldReport, error) {
	var (
		report traffic.HoldReport
		out    []byte
	)

	if f.host != nil {
		if err := f.host.Stop(2 * flowsPatience); err != nil {
			return report, err
		}

		var err error
		if out, err = os.ReadFile(f.log); err != nil {
			return report, err
		}
	} else {
		if pid, err := c.clientOf(ctx, f); err == nil { // otherwise it has ended, and its report says why
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				return report, err
			}
		}

		var err error
		if _, out, err = c.ended(ctx, f.pod); err != nil {
			return report, err
		}
	}
	// The first line is the report. A message may follow.
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&report); err != nil {
		return report, fmt.Errorf("read report %q: %w", out, err)
	}

	return report, nil
}

// ended waits until a pod has ended, and returns its phase and output.
func (c *Cluster) ended(ctx context.Context, pod string) (corev1.PodPhase, []byte, error) {
	var is corev1.PodPhase

	err := c.await(ctx, "pod "+pod+" to end", func() error {
		p, err := c.client.CoreV1().Pods(flowsNamespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if is = p.Status.Phase; is != corev1.PodSucceeded && is != corev1.PodFailed {
			return fmt.Errorf("it is %s", is)
		}

		return nil
	})
	if err != nil {
		return is, nil, err
	}

	out, err := c.kubectl(ctx, nil, "-n", flowsNamespace, "logs", pod)

	return is, out, err
}
