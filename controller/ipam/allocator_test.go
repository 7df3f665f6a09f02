package ipam_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
)

// settings are those of a cluster with both families: 16 nodes, 12 pods on each.
func settings() ipam.Settings {
	return ipam.Settings{
		Subnets: []ipam.Subnet{
			{Prefix: netip.MustParsePrefix("10.0.0.0/24"), HostLen: 28}, {Prefix: netip.MustParsePrefix("fd00::/60"), HostLen: 64},
		},
		JoinSubnets: prefixes("100.64.0.0/24", "fd98::/64"),
		Log:         slog.New(slog.DiscardHandler),
	}
}

// newNode returns a node whose annotations have the id and the subnets, unless these are zero.
func newNode(name string, id int, subnets ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if id != 0 {
		n.Annotations[annotation.NodeID] = strconv.Itoa(id)
	}

	if subnets != nil {
		n.Annotations[annotation.NodeSubnets] = annotation.FormatNodeSubnets(prefixes(subnets...))
	}

	return n
}

// newPod returns a pod whose annotation has the addresses, if there are any.
func newPod(name, node string, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	if addresses != nil {
		p.Annotations[annotation.PodNetworks] = annotation.FormatPod(annotation.Pod{
			Addresses: prefixes(addresses...), MAC: net.HardwareAddr{0x0a, 0x58, 1, 2, 3, 4},
		})
	}

	return p
}

func noPods(string) []*corev1.Pod { return nil }

// asksFor sets the pod's request.
func asksFor(p *corev1.Pod, request string) *corev1.Pod {
	p.Annotations[annotation.DefaultNetwork] = request
	return p
}

// TestNode: what a node gets, by its annotations and by what the cluster has left.
func TestNode(t *testing.T) {
	joined := settings()
	joined.WaitForAgent = true
	ready := newNode("n", 0)
	ready.Annotations[annotation.ChassisID] = "c"
	smallJoin, one := settings(), settings()
	smallJoin.JoinSubnets = prefixes("100.64.0.0/31")

	one.Subnets = []ipam.Subnet{{Prefix: netip.MustParsePrefix("10.0.0.0/28"), HostLen: 28}}
	for _, tt := range []struct {
		name          string
		settings      ipam.Settings  // the zero value: settings()
		others        []*corev1.Node // recovered
		node          *corev1.Node
		id            int // 0: it gets nothing
		subnets       []string
		conflict, err error
	}{
		{name: "no annotation", node: newNode("n", 0), id: 1, subnets: []string{"10.0.0.0/28", "fd00::/64"}},
		{
			name: "the annotation's", node: newNode("n", 7, "10.0.0.48/28", "fd00:0:0:3::/64"),
			id: 7, subnets: []string{"10.0.0.48/28", "fd00:0:0:3::/64"},
		},
		{name: "one family in the annotation", node: newNode("n", 7, "10.0.0.48/28"), id: 7, subnets: []string{"10.0.0.48/28", "fd00::/64"}},
		{
			name: "a subnet twice in the annotation", node: newNode("n", 7, "10.0.0.48/28", "10.0.0.48/28", "fd00:0:0:3::/64"),
			id: 7, subnets: []string{"10.0.0.48/28", "fd00:0:0:3::/64"},
		},
		{
			name: "another node's id", others: []*corev1.Node{newNode("o", 7)}, node: newNode("n", 7),
			id: 1, subnets: []string{"10.0.0.0/28", "fd00::/64"}, conflict: ipam.ErrTaken,
		},
		{
			name: "another node's subnet", others: []*corev1.Node{newNode("o", 0, "10.0.0.0/28")}, node: newNode("n", 3, "10.0.0.0/28"),
			id: 3, subnets: []string{"10.0.0.16/28", "fd00::/64"}, conflict: ipam.ErrTaken,
		},
		{name: "a subnet outside the cluster's", node: newNode("n", 7, "192.168.0.0/28"), err: ipam.ErrInvalid},
		{name: "its agent has not come", settings: joined, node: newNode("n", 0)},
		{name: "its agent has come", settings: joined, node: ready, id: 1, subnets: []string{"10.0.0.0/28", "fd00::/64"}},
		{
			name: "an annotation before its agent has come", settings: joined, node: newNode("n", 0, "10.0.0.48/28"),
			id: 1, subnets: []string{"10.0.0.48/28", "fd00::/64"},
		},
		{name: "no join address is left", settings: smallJoin, node: newNode("n", 0), err: ipam.ErrExhausted},
		{name: "no subnet is left", settings: one, others: []*corev1.Node{newNode("o", 0, "10.0.0.0/28")}, node: newNode("n", 0), err: ipam.ErrExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.settings.Subnets == nil {
				tt.settings = settings()
			}

			a := ipam.NewAllocator(tt.settings)
			a.Recover(tt.others, nil, nil)

			got, conflict, err := a.Node(tt.node, noPods)
			if got.ID != tt.id || !errors.Is(conflict, tt.conflict) || !errors.Is(err, tt.err) {
				t.Errorf("id %d, conflict %v, error %v; want %d, %v, %v", got.ID, conflict, err, tt.id, tt.conflict, tt.err)
			}

			if diff := cmp.Diff(tt.subnets, text(got.Subnets)); diff != "" {
				t.Errorf("subnets (-want +got):\n%s", diff)
			}

			var join annotation.Join
			if tt.id != 0 {
				join.IPv4 = netip.MustParsePrefix(fmt.Sprintf("100.64.0.%d/24", tt.id+1))
				join.IPv6 = netip.MustParsePrefix(fmt.Sprintf("fd98::%d/64", tt.id+1))
			}

			if got.Join != join {
				t.Errorf("join addresses %v, want %v", got.Join, join)
			}
		})
	}
}

// TestNodeKeepsItsAllocation: an allocation stays when the annotation is changed or lost. Only a
// subnet outside the cluster's is exchanged for the annotation's.
func TestNodeKeepsItsAllocation(t *testing.T) {
	a := ipam.NewAllocator(settings())
	a.Recover([]*corev1.Node{newNode("n", 7, "10.0.0.48/28", "fd00:0:0:3::/64"), newNode("outside", 8, "192.168.0.0/28")}, nil, nil)

	for _, tt := range []struct {
		node    *corev1.Node
		id      int
		subnets []string
	}{
		{newNode("n", 9, "10.0.0.64/28", "fd00:0:0:4::/64"), 7, []string{"10.0.0.48/28", "fd00:0:0:3::/64"}},
		{newNode("n", 0), 7, []string{"10.0.0.48/28", "fd00:0:0:3::/64"}},
		{newNode("outside", 8, "10.0.0.80/28", "fd00:0:0:5::/64"), 8, []string{"10.0.0.80/28", "fd00:0:0:5::/64"}},
		{newNode("outside", 8), 8, []string{"10.0.0.80/28", "fd00:0:0:5::/64"}},
	} {
		got, conflict, err := a.Node(tt.node, noPods)
		if got.ID != tt.id || !slices.Equal(text(got.Subnets), tt.subnets) || conflict != nil || err != nil {
			t.Errorf("%s: %d, %v, conflict %v, error %v; want %d, %v", tt.node.Name, got.ID, got.Subnets, conflict, err, tt.id, tt.subnets)
		}
	}

	if !a.ReleaseNode("n") || a.ReleaseNode("n") {
		t.Error("the node had an allocation, and it was released once")
	}

	if got, _, err := a.Node(newNode("n", 9, "10.0.0.64/28", "fd00:0:0:4::/64"), noPods); got.ID != 9 || err != nil {
		t.Errorf("after its release it has id %d, %v, want its annotation's 9", got.ID, err)
	}
}

// TestNodeComesBack: a node that comes back holds the addresses of its pods before another pod can
// get one. Of two pods with the same address the older has it.
func TestNodeComesBack(t *testing.T) {
	node := newNode("n", 1, "10.0.0.0/28")
	older, younger := newPod("older", "n", "10.0.0.3/28"), newPod("a-younger", "n", "10.0.0.3/28")
	younger.CreationTimestamp = metav1.Unix(2, 0)
	older.CreationTimestamp = metav1.Unix(1, 0)
	done := newPod("done", "n", "10.0.0.4/28")
	done.Status.Phase = corev1.PodSucceeded
	pods := func(name string) []*corev1.Pod {
		if name != "n" {
			return nil
		}

		return []*corev1.Pod{newPod("without-annotation", "n"), younger, done, older}
	}

	a := ipam.NewAllocator(settings())
	if _, conflict, err := a.Node(node, pods); conflict != nil || err != nil {
		t.Fatalf("conflict %v, error %v", conflict, err)
	}

	want := map[ipam.Pod][]string{ipam.PodOf(older): {"10.0.0.3/28"}}

	got := map[ipam.Pod][]string{}
	for pod, addresses := range a.Pods() {
		got[pod] = text(addresses)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods with addresses (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"n"}, a.Nodes()); diff != "" {
		t.Errorf("nodes with subnets (-want +got):\n%s", diff)
	}
}

// TestNodeComesBackAfterRecovery: what OVN has of a pod counts, too, if its node had no subnets
// when the leader changed.
func TestNodeComesBackAfterRecovery(t *testing.T) {
	pod, other := newPod("a", "n", "10.0.0.9/28"), newPod("other", "n", "10.0.0.5/28")
	pod.CreationTimestamp, other.CreationTimestamp = metav1.Unix(2, 0), metav1.Unix(1, 0)
	pods := []*corev1.Pod{other, pod}
	port := ipam.Port{Pod: ipam.PodOf(pod), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Addresses: addrs("10.0.0.5")}
	a := ipam.NewAllocator(settings())
	a.Recover([]*corev1.Node{newNode("n", 1)}, slices.Clone(pods), []ipam.Port{port})

	if got := a.Pods(); len(got) != 0 {
		t.Errorf("without subnets of their node, pods have %v", got)
	}

	if _, _, err := a.Node(newNode("n", 1, "10.0.0.0/28"), func(string) []*corev1.Pod { return pods }); err != nil {
		t.Fatal(err)
	}

	got := a.Network(port.Pod)
	if !slices.Equal(text(got.Addresses), []string{"10.0.0.5/28"}) || !slices.Equal(got.MAC, port.MAC) {
		t.Errorf("it has %v and %s, want what OVN has: %v and %s", got.Addresses, got.MAC, port.Addresses, port.MAC)
	}

	if got := a.Network(ipam.PodOf(other)); len(got.Addresses) != 0 {
		t.Errorf("an older pod whose annotation has the same address has %v", got.Addresses)
	}
}

// TestRecoverLogs: a value that two objects claim is logged once, and a value of one owner never.
func TestRecoverLogs(t *testing.T) {
	var log strings.Builder

	s := settings()
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	nodes := []*corev1.Node{newNode("a", 1, "10.0.0.0/28"), newNode("b", 2, "10.0.0.16/28")}
	ipam.NewAllocator(s).Recover(nodes, []*corev1.Pod{newPod("p", "a", "10.0.0.3/28"), newPod("q", "b", "10.0.0.19/28")}, nil)

	if log.Len() != 0 {
		t.Errorf("with no value twice it logs:\n%s", &log)
	}

	log.Reset()

	nodes = append(nodes, newNode("c", 1, "10.0.0.32/28"), newNode("d", 4, "10.0.0.16/28"))
	ipam.NewAllocator(s).Recover(nodes, []*corev1.Pod{newPod("p", "a", "10.0.0.3/28"), newPod("q", "a", "10.0.0.3/28")}, nil)

	if got := strings.Count(log.String(), "allocation found twice"); got != 3 {
		t.Errorf("an id, a subnet and an address are claimed twice, and it logs:\n%s", &log)
	}
}

// TestUsage: Usage counts nodes, addresses and full subnets, and lists the fullest subnets by
// their share in use.
func TestUsage(t *testing.T) {
	s := settings()
	s.Subnets = s.Subnets[:1]
	a := ipam.NewAllocator(s)
	large, middle := newNode("large", 2, "10.0.0.16/28"), newNode("middle", 3, "10.0.0.8/29")
	a.Recover([]*corev1.Node{newNode("small", 1, "10.0.0.0/30"), large, middle, newNode("empty", 4, "10.0.0.32/28")}, nil, nil)

	fill := func(n *corev1.Node, pods int) {
		for i := range pods {
			if _, _, err := a.Pod(n, newPod(fmt.Sprint(n.Name, i), n.Name), noPods); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(large, 4)
	fill(middle, 2)

	usage := func(node, subnet string, used, room int) ipam.SubnetUsage {
		return ipam.SubnetUsage{Node: node, Subnet: netip.MustParsePrefix(subnet), Used: used, Room: room}
	}
	equal := cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })

	want := ipam.Usage{
		Nodes: 4, Addresses: 6, Full: 1, // the small one, without room
		Fullest: []ipam.SubnetUsage{
			usage("small", "10.0.0.0/30", 0, 0), usage("middle", "10.0.0.8/29", 2, 4),
			usage("large", "10.0.0.16/28", 4, 12), usage("empty", "10.0.0.32/28", 0, 12),
		},
		Cluster: map[netip.Prefix]struct{ Used, Room int }{netip.MustParsePrefix("10.0.0.0/24"): {4, 16}},
	}
	if diff := cmp.Diff(want, a.Usage(4), equal); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}

	a.ReleaseNode("small")
	fill(middle, 4)

	if got := a.Usage(1); got.Full != 1 || len(got.Fullest) != 1 || got.Fullest[0] != usage("middle", "10.0.0.8/29", 4, 4) {
		t.Errorf("usage with one full subnet: %+v", got)
	}

	fill(large, 12)

	if got := a.Usage(9); got.Full != 2 || len(got.Fullest) != 3 || got.Fullest[0].Node != "large" || got.Fullest[1].Node != "middle" {
		t.Errorf("usage with two full subnets: %+v", got)
	}
}
