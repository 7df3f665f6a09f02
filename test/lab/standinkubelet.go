package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// PodSpec describes a pod.
type PodSpec struct {
	Namespace, Name string // Namespace is created if missing; default "default"
	Node            string // name of the node
	Labels          map[string]string
	Annotations     map[string]string
	Ports           []corev1.ContainerPort // for host ports
	// Prepared, if not nil, is called after the controller has assigned an address and before the
	// plugin.
	Prepared func()
	// Wire, if not nil, is another CNI implementation, called in place of the plugin after the
	// controller has assigned an address. Its changes to the node end with the lab.
	Wire func(context.Context, *Pod) error
}

// Pod is a pod of the lab: an object, and a network namespace with an interface from the plugin.
type Pod struct {
	Namespace, Name, Node string
	UID                   string
	Netns                 string
	IPs                   []netip.Addr     // in the plugin's order
	MAC                   net.HardwareAddr // only with another implementation
	Labels                map[string]string
	Took                  time.Duration // duration of the plugin
}

// Host returns the pod's name for Exec.
func (p *Pod) Host() string { return "pod:" + p.Namespace + "/" + p.Name }

// IP4 and IP6 return the pod's address of the family, or the zero Addr.
func (p *Pod) IP4() netip.Addr { return p.family(netip.Addr.Is4) }
func (p *Pod) IP6() netip.Addr { return p.family(netip.Addr.Is6) }

func (p *Pod) family(is func(netip.Addr) bool) netip.Addr {
	for _, a := range p.IPs {
		if is(a) {
			return a
		}
	}

	return netip.Addr{}
}

// containerID returns a container ID, derived from the pod so that it can be found again.
func (p *Pod) containerID() string {
	sum := sha256.Sum256([]byte(p.UID))
	return hex.EncodeToString(sum[:])
}

func (l *Lab) podNetns(namespace, name string) string {
	return fmt.Sprintf("%s-p-%s-%s", l.opts.Name, namespace, name)
}

// AddPod plays scheduler, kubelet and runtime: it creates the Pod bound to its node, creates a
// network namespace, calls the plugin with the node's CNI configuration, and reports the result in
// the pod's status. It returns when the pod is Running. On an error it removes all parts of the
// pod.
func (l *Lab) AddPod(ctx context.Context, s PodSpec) (*Pod, error) {
	if s.Namespace == "" {
		s.Namespace = metav1.NamespaceDefault
	}

	p, err := l.addPod(ctx, s)
	if err != nil {
		err = fmt.Errorf("add pod %s/%s: %w", s.Namespace, s.Name, err)
		if p != nil {
			err = errors.Join(err, l.DelPod(context.WithoutCancel(ctx), p))
		}

		return nil, err
	}

	return p, nil
}

// addPod returns the pod even with an error, if parts of it exist.
func (l *Lab) addPod(ctx context.Context, s PodSpec) (*Pod, error) {
	if l.opts.Pods {
		return nil, errors.New("the lab's stand-in kubelets run its pods")
	}

	node, err := l.nodeByName(s.Node)
	if err != nil {
		return nil, err
	}

	client, err := l.Kubernetes()
	if err != nil {
		return nil, err
	}

	if err := standinNamespace(ctx, client, s.Namespace); err != nil {
		return nil, err
	}

	object, err := client.CoreV1().Pods(s.Namespace).Create(ctx, standinPod(s), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	p := &Pod{
		Namespace: s.Namespace, Name: s.Name, Node: s.Node, UID: string(object.UID),
		Netns: l.podNetns(s.Namespace, s.Name), Labels: s.Labels,
	}
	if err := netns.Create(p.Netns); err != nil {
		return p, err
	}
	// The task of the loopback plugin.
	if err := netns.Do(p.Netns, func() error { return setUp("lo") }); err != nil {
		return p, err
	}

	if s.Prepared != nil || s.Wire != nil {
		if p.IPs, p.MAC, err = awaitAddress(ctx, client, p); err != nil {
			return p, err
		}
	}

	if s.Prepared != nil {
		s.Prepared()
	}

	began := time.Now()

	if s.Wire != nil {
		err = s.Wire(ctx, p)
	} else {
		p.IPs, err = l.attach(ctx, node, p)
	}

	if err != nil {
		return p, err
	}

	p.Took = time.Since(began)
	object.Status = standinRunning(node, p)

	_, err = client.CoreV1().Pods(s.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		// The controller has annotated it in the meantime.
		if object, err = client.CoreV1().Pods(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{}); err != nil {
			return p, err
		}

		object.Status = standinRunning(node, p)
		_, err = client.CoreV1().Pods(s.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	}

	return p, err
}

// awaitAddress waits for the controller's annotation of the pod, and returns its content.
func awaitAddress(ctx context.Context, client *kubernetes.Clientset, p *Pod) ([]netip.Addr, net.HardwareAddr, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		object, err := client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}

		given, err := annotation.ParsePod(object.Annotations)
		if err == nil {
			var addrs []netip.Addr
			for _, a := range given.Addresses {
				addrs = append(addrs, a.Addr())
			}

			return addrs, given.MAC, nil
		}

		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// DelPod calls the plugin with DEL, then removes namespace and object. It is idempotent.
func (l *Lab) DelPod(ctx context.Context, p *Pod) error {
	node, err := l.nodeByName(p.Node)
	if err != nil {
		return err
	}

	client, err := l.Kubernetes()
	if err != nil {
		return err
	}

	var errs []error
	if err := killInside([]string{p.Netns}); err != nil && !isNotExist(err) {
		errs = append(errs, err)
	}

	errs = append(errs, l.detach(ctx, node, p), netns.Delete(p.Netns))
	now := int64(0)

	err = client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(p.UID),
	})
	if !apierrors.IsNotFound(err) {
		errs = append(errs, err)
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}

	return nil
}

func (l *Lab) nodeByName(name string) (*Node, error) {
	nodes := l.KubeNodes()
	for _, n := range nodes {
		if n.Name == name {
			return n, nil
		}
	}

	return nil, fmt.Errorf("find node %q: not %s to %s", name, nodes[0].Name, nodes[len(nodes)-1].Name)
}

// standinNodes creates the Node objects, as kubelets do.
func standinNodes(
	ctx context.Context, client *kubernetes.Clientset, nodes []*Node, nominal corev1.ResourceList,
) error {
	for _, n := range nodes {
		object, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node %s: %w", n.Name, err)
		}

		var addresses []corev1.NodeAddress
		for _, a := range n.Addresses() {
			addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		}

		object.Status = corev1.NodeStatus{
			Addresses: append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name}),
			Capacity:  nominal, Allocatable: nominal,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "LabNode",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		}
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update status of node %s: %w", n.Name, err)
		}
	}

	return nil
}

// machine is the nominal capacity of a node, sufficient for typical tests.
func machine() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
	}
}

// smallVM is the nominal capacity of a VM. The controller of underlay mode gives such a node 13 ports.
func smallVM() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("1"),
		corev1.ResourceMemory: resource.MustParse("2Gi"),
	}
}

func standinNamespace(ctx context.Context, client *kubernetes.Clientset, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}

	return err
}

func standinPod(s PodSpec) *corev1.Pod {
	no, now := false, int64(0)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: s.Annotations},
		Spec: corev1.PodSpec{
			NodeName: s.Node, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{Name: "netns", Image: "none", Ports: s.Ports}},
		},
	}
}

// hostIPs returns the node's addresses for the status of its pods.
func hostIPs(n *Node) []corev1.HostIP {
	var ips []corev1.HostIP
	for _, a := range n.Addresses() {
		ips = append(ips, corev1.HostIP{IP: a.String()})
	}

	return ips
}

func standinRunning(n *Node, p *Pod) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: n.IP4.String(), HostIPs: hostIPs(n)}
	for _, a := range p.IPs {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a.String()})
	}

	if len(p.IPs) > 0 {
		status.PodIP = p.IPs[0].String()
	}

	now := metav1.Now()

	status.StartTime = &now
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}

	return status
}
