package ipam_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestHistories: in random histories no address, MAC address, id or subnet has two owners, and a
// pod in OVN keeps what it has there. Pods request what others have, tenants write annotations, writes
// get lost, nodes go and come back, and leaders change.
func TestHistories(t *testing.T) {
	seed := randomtest.Seed(t)
	for history := range uint64(30) {
		h := &cluster{
			t: t, r: rand.New(rand.NewPCG(seed, history)), a: ipam.NewAllocator(settings()),
			nodes: map[string]*corev1.Node{}, away: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, inOVN: map[ipam.Pod]annotation.Pod{},
		}
		for range 300 {
			h.step()
			h.check()

			if t.Failed() {
				t.Fatalf("history %d", history)
			}
		}
	}
}

// cluster is a cluster as a controller sees it.
type cluster struct {
	t           *testing.T
	r           *rand.Rand
	a           *ipam.Allocator
	nodes, away map[string]*corev1.Node // away: deleted, and may come back as they were
	pods        map[string]*corev1.Pod
	inOVN       map[ipam.Pod]annotation.Pod
	created     int
}

// one returns one of the map's values at random, nil if there is none.
func one[T any](r *rand.Rand, of map[string]*T) *T {
	if len(of) == 0 {
		return nil
	}

	return of[slices.Sorted(maps.Keys(of))[r.IntN(len(of))]]
}

func (h *cluster) step() {
	n, p := one(h.r, h.nodes), one(h.r, h.pods)
	switch k := h.r.IntN(100); {
	case k < 4:
		h.addNode()
	case n == nil:
	case k < 6:
		h.removeNode(n)
	case k < 30:
		h.addPod(n)
	case p == nil:
	case k < 38:
		h.removePod(p)
	case k < 44:
		p.Annotations[annotation.PodNetworks] = h.anyNetwork()
	case k < 46:
		n.Annotations[annotation.NodeSubnets] = annotation.FormatNodeSubnets(prefixes("10.0.0.16/28", "fd00:0:0:1::/64"))
	case k < 48:
		h.changeLeader()
	case k < 55:
		h.planNode(n)
	default:
		h.planPod(p)
	}
}

func (h *cluster) addNode() {
	name := fmt.Sprint("n", h.r.IntN(6))
	if h.nodes[name] != nil {
		return
	}

	n := newNode(name, 0)
	if old := h.away[name]; old != nil && h.r.IntN(4) > 0 {
		n = old
	}

	delete(h.away, name)
	h.nodes[name] = n
	h.planNode(n)
}

func (h *cluster) removeNode(n *corev1.Node) {
	delete(h.nodes, n.Name)
	h.away[n.Name] = n
	h.a.ReleaseNode(n.Name)

	for _, p := range h.podsOf(n.Name) {
		delete(h.inOVN, ipam.PodOf(p))
		h.a.ReleasePods(ipam.PodOf(p).Name)
	}
}

func (h *cluster) podsOf(node string) []*corev1.Pod {
	var out []*corev1.Pod

	for _, p := range h.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}

	return out
}

func (h *cluster) addPod(n *corev1.Node) {
	h.created++
	p := newPod(fmt.Sprint("p", h.created), n.Name)

	p.CreationTimestamp = metav1.Unix(int64(h.created), 0)
	switch h.r.IntN(6) {
	case 0:
		asksFor(p, fmt.Sprintf(`{"ips":["10.0.0.%d"]}`, h.r.IntN(64)))
	case 1:
		asksFor(p, fmt.Sprintf(`{"mac":"02:00:00:00:00:%02x"}`, h.r.IntN(8)))
	case 2:
		asksFor(p, fmt.Sprintf(`{"mac":%q}`, annotation.DerivedMAC(h.anyAddress())))
	case 3:
		p.Annotations[annotation.PodNetworks] = h.anyNetwork()
	}

	h.pods[p.Name] = p
}

func (h *cluster) removePod(p *corev1.Pod) {
	delete(h.pods, p.Name)
	delete(h.inOVN, ipam.PodOf(p))
	h.a.ReleasePods(ipam.PodOf(p).Name)
}

func (h *cluster) anyAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(h.r.IntN(64))})
}

// anyNetwork is what a tenant may write.
func (h *cluster) anyNetwork() string {
	a := h.anyAddress()
	network := annotation.Pod{Addresses: []netip.Prefix{netip.PrefixFrom(a, 28)}, MAC: annotation.DerivedMAC(a)}

	switch h.r.IntN(4) {
	case 0:
		network.Addresses = append(network.Addresses, netip.PrefixFrom(h.anyAddress(), 28))
	case 1:
		network.Addresses = append(network.Addresses, netip.MustParsePrefix(fmt.Sprintf("fd00::%x/64", h.r.IntN(12))))
	case 2:
		network.MAC = net.HardwareAddr{2, 0, 0, 0, 0, byte(h.r.IntN(8))}
	}

	return annotation.FormatPod(network)
}

// planNode writes the node's annotations, mostly.
func (h *cluster) planNode(n *corev1.Node) {
	if h.r.IntN(4) > 0 {
		h.writeNode(n)
	} else if _, _, err := h.a.Node(n, h.podsOf); err != nil {
		h.t.Errorf("node %s: %v", n.Name, err)
	}
}

func (h *cluster) writeNode(n *corev1.Node) {
	node, _, err := h.a.Node(n, h.podsOf)
	if err != nil {
		h.t.Errorf("node %s: %v", n.Name, err)
		return
	}

	n.Annotations[annotation.NodeID] = strconv.Itoa(node.ID)
	n.Annotations[annotation.NodeSubnets] = annotation.FormatNodeSubnets(node.Subnets)
}

// planPod writes the pod's annotation, mostly, and then its port.
func (h *cluster) planPod(p *corev1.Pod) {
	n := h.nodes[p.Spec.NodeName]
	if n == nil {
		return
	}

	network, _, err := h.a.Pod(n, p, h.podsOf)

	asked := p.Annotations[annotation.DefaultNetwork] != ""
	switch {
	case err != nil && !errors.Is(err, ipam.ErrNodeBehind) && !asked:
		h.checkFull(n, err)
	case err != nil || len(network.Addresses) == 0:
	case h.r.IntN(4) > 0:
		p.Annotations[annotation.PodNetworks] = annotation.FormatPod(network)
		if h.r.IntN(4) > 0 { // else the answer is lost
			h.a.RecordWritten(ipam.PodOf(p))
			h.inOVN[ipam.PodOf(p)] = network
		}
	}
}

// checkFull: a pod without a request gets an address unless all of its node's are in use.
func (h *cluster) checkFull(n *corev1.Node, err error) {
	for _, s := range h.a.Usage(100).Fullest {
		if s.Node == n.Name && s.Used == s.Room && errors.Is(err, ipam.ErrExhausted) {
			return
		}
	}

	h.t.Errorf("a pod on node %s gets nothing: %v", n.Name, err)
}

// changeLeader recovers from what the API server and OVN have. Subnets count as the nodes'
// annotations have them, so these are restored before.
func (h *cluster) changeLeader() {
	for _, name := range slices.Sorted(maps.Keys(h.nodes)) {
		h.writeNode(h.nodes[name])
	}

	h.a = ipam.NewAllocator(settings())

	var ports []ipam.Port

	for pod, network := range h.inOVN {
		port := ipam.Port{Pod: pod, MAC: network.MAC}
		for _, a := range network.Addresses {
			port.Addresses = append(port.Addresses, a.Addr())
		}

		ports = append(ports, port)
	}

	h.a.Recover(slices.Collect(maps.Values(h.nodes)), slices.Collect(maps.Values(h.pods)), ports)
}

// check compares the allocations with each other, and with OVN.
func (h *cluster) check() {
	pods, owner, macs, count := h.a.Pods(), map[netip.Addr]ipam.Pod{}, map[string]ipam.Pod{}, 0
	for pod, addresses := range pods {
		network := h.a.Network(pod)
		for i, a := range addresses {
			if other, ok := owner[a.Addr()]; ok {
				h.t.Errorf("%s and %s have %s", pod.Name, other.Name, a)
			}

			if owner[a.Addr()] = pod; network.Gateways[i] == a.Addr() || plan.ManagementAddress(a).Addr() == a.Addr() {
				h.t.Errorf("%s has its node's address %s", pod.Name, a)
			}

			count++
		}

		at := h.pods[pod.Name[len("ns/"):]].Spec.NodeName + " " + network.MAC.String()
		if other, ok := macs[at]; ok {
			h.t.Errorf("%s and %s have %s", pod.Name, other.Name, at)
		}

		macs[at] = pod
	}

	for pod, want := range h.inOVN {
		got := h.a.Network(pod)

		lacks := func(a netip.Prefix) bool { return !slices.Contains(got.Addresses, a) }
		if slices.ContainsFunc(want.Addresses, lacks) || !slices.Equal(got.MAC, want.MAC) {
			h.t.Errorf("%s has %v and %s, OVN %v and %s", pod.Name, got.Addresses, got.MAC, want.Addresses, want.MAC)
		}
	}

	if u := h.a.Usage(0); u.Addresses != count || u.Nodes != len(h.a.Nodes()) {
		h.t.Errorf("%d addresses of %d nodes in use, want %d of %d", u.Addresses, u.Nodes, count, len(h.a.Nodes()))
	}
}
