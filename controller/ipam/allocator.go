package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// maxNodes bounds node ids; a smaller join subnet bounds them further.
const maxNodes = 1 << 16

// Settings are what an Allocator allocates from.
type Settings struct {
	Subnets     []Subnet // of nodes' pods
	JoinSubnets []netip.Prefix
	// Joined: a node gets a subnet when its agent has come, not before.
	Joined bool
	Log    *slog.Logger // of allocations that are found twice
}

// Allocator has all allocations of a cluster. It decides what a node or a pod gets and returns
// that. The caller writes it to annotations. An annotation is not trusted for what its owner
// already holds. All methods may be called at the same time.
type Allocator struct {
	settings Settings

	mu    sync.Mutex // guards all below
	nodes *Nodes
	pods  *Pods
	macs  map[string][]string // of nodes' own ports, by node
	ports map[Pod]Port        // what OVN has of pods that are not recovered yet
	// unwritten are pods whose addresses were chosen and are in no annotation yet, as far as is known.
	unwritten map[Pod]bool
}

// NewAllocator returns an Allocator without allocations.
func NewAllocator(s Settings) *Allocator {
	return &Allocator{
		settings: s, nodes: NewNodes(s.Subnets, maxNodes), pods: NewPods(),
		macs: map[string][]string{}, ports: map[Pod]Port{}, unwritten: map[Pod]bool{},
	}
}

// Node is what a node has.
type Node struct {
	ID      int
	Subnets []netip.Prefix
	Join    annotation.Join
}

// Node returns what the node has, and allocates what it lacks. It returns the zero Node for a node
// that gets nothing before its agent has come. What a node was given stays its own, whatever
// becomes of its annotation: it gets another id or subnet if its annotation came with another
// node's, and then conflict says so. A node whose subnets are outside of the cluster's gets
// nothing. podsOf returns the pods of a node.
func (a *Allocator) Node(n *corev1.Node, podsOf func(node string) []*corev1.Pod) (node Node, conflict, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	conflict = a.holdNode(n, podsOf)
	if err := a.nodes.Outside(n.Name); err != nil {
		return Node{}, conflict, fmt.Errorf("%w: remove annotation %s for another, or add its network to the cluster's", err, annotation.NodeSubnets)
	}
	if a.settings.Joined && a.nodes.Held(n.Name) == nil && n.Annotations[annotation.ChassisID] == "" {
		return Node{}, conflict, nil // its administrator may have a subnet for it
	}
	if node.ID, err = a.nodes.ID(n.Name); err != nil {
		return Node{}, conflict, err
	}
	if node.Join, err = a.join(n.Name, node.ID); err != nil {
		return Node{}, conflict, err
	}
	if node.Subnets, err = a.nodes.Subnets(n.Name); err != nil {
		return Node{}, conflict, err
	}
	a.macs[n.Name] = nodeMACs(n, node.Subnets)
	return node, conflict, nil
}

// holdNode holds what the node's annotations say, where nothing is held yet. A subnet outside of
// the cluster's gives way to what the annotation says now. It also holds for the node's pods what
// their annotations say, unless podsOf is nil: a node that comes back must not give their addresses
// to others.
func (a *Allocator) holdNode(n *corev1.Node, podsOf func(node string) []*corev1.Pod) error {
	var errs []error
	if id, err := annotation.ParseNodeID(n.Annotations); err == nil && !a.nodes.HasID(n.Name) {
		errs = append(errs, a.nodes.HoldID(n.Name, id))
	}
	if a.nodes.Outside(n.Name) != nil {
		a.nodes.ReleaseSubnets(n.Name)
	}
	subnets, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil || a.nodes.Held(n.Name) != nil {
		return errors.Join(errs...)
	}
	errs = append(errs, a.nodes.HoldSubnets(n.Name, subnets))
	a.macs[n.Name] = nodeMACs(n, a.nodes.Held(n.Name))
	if podsOf != nil && a.nodes.Held(n.Name) != nil {
		pods := podsOf(n.Name)
		slices.SortFunc(pods, older)
		for _, p := range pods {
			a.recoverPod(p)
		}
	}
	return errors.Join(errs...)
}

// older sorts by age, of the same age by name.
func older[T metav1.Object](x, y T) int {
	return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time),
		cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
}

func (a *Allocator) join(node string, id int) (join annotation.Join, err error) {
	for _, s := range a.settings.JoinSubnets {
		p, err := JoinAddress(s, id)
		if err != nil {
			return join, fmt.Errorf("allocate join address for node %q: %w", node, err)
		}
		if p.Addr().Is4() {
			join.IPv4 = p
		} else {
			join.IPv6 = p
		}
	}
	return join, nil
}

// Written notes that the pod's annotations say what it holds.
func (a *Allocator) Written(pod Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unwritten, pod)
}

// ReleaseNode forgets what the node has, and reports whether that was anything.
func (a *Allocator) ReleaseNode(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.macs, name)
	return a.nodes.Release(name)
}

// ReleasePods forgets all pods of that name but those with the UIDs to keep.
func (a *Allocator) ReleasePods(name string, keep ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods.Release(name, keep...)
	maps.DeleteFunc(a.unwritten, func(p Pod, _ bool) bool { return p.Name == name && !slices.Contains(keep, p.UID) })
}

// Freed returns the addresses that pods have lost since it was last called.
func (a *Allocator) Freed() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods.Freed()
}

// Nodes returns the names of the nodes that have subnets, in no order.
func (a *Allocator) Nodes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.nodes.All()))
}

// Pods returns the addresses of all pods that have any.
func (a *Allocator) Pods() map[Pod][]netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[Pod][]netip.Prefix{}
	for _, p := range a.pods.All() {
		out[p] = a.pods.Held(p)
	}
	return out
}
