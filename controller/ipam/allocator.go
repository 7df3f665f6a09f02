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

// maxNodes is the highest node id. If the join subnet has fewer addresses, Node returns an error
// before ids reach it.
const maxNodes = 1 << 16

// ErrExhausted is returned (wrapped) when nothing is left to allocate.
var ErrExhausted = errors.New("exhausted")

// ErrTaken is returned (wrapped) when another owner has the requested value.
var ErrTaken = errors.New("taken")

// ErrInvalid is returned (wrapped) for a request that can never be fulfilled.
var ErrInvalid = errors.New("invalid")

// UnavailableError is returned (wrapped) for a pod whose address or MAC address is taken or
// exhausted now. The request may succeed once an address in For is released (TakeFreed).
type UnavailableError struct {
	For netip.Prefix // an address, or a subnet
	err error        // wraps ErrTaken or ErrExhausted
}

func (e *UnavailableError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.err }

// Settings configure an Allocator. All must be set, except WaitForAgent.
type Settings struct {
	Subnets     []Subnet       // of all pods
	JoinSubnets []netip.Prefix // of the gateway routers, at most one per family
	// WaitForAgent: a node gets a subnet only after its agent has written its annotations.
	WaitForAgent bool
	Log          *slog.Logger // warns of values that two owners claim at a recovery
}

// Allocator holds all allocations of a cluster. It allocates for nodes and pods and returns the
// values, which the caller writes to annotations. An annotation is not trusted when its owner
// already has an allocation. The methods are safe for concurrent use.
type Allocator struct {
	settings Settings

	mu        sync.Mutex // guards all below
	nodes     *Nodes
	pods      *Pods
	macs      map[string][]string // by node: MAC addresses that its pods must not have (nodeMACs)
	ports     map[Pod]Port        // in OVN, of pods whose allocation is not recovered yet
	unwritten map[Pod]bool        // pods with an allocation that may not be in their annotation yet
}

// NewAllocator returns an Allocator without allocations.
func NewAllocator(s Settings) *Allocator {
	return &Allocator{
		settings: s, nodes: NewNodes(s.Subnets, maxNodes), pods: NewPods(),
		macs: map[string][]string{}, ports: map[Pod]Port{}, unwritten: map[Pod]bool{},
	}
}

// Node is a node's allocation.
type Node struct {
	ID      int             // from 1
	Subnets []netip.Prefix  // of its pods, one per family
	Join    annotation.Join // addresses of its gateway router, which follow from ID
}

// Node returns the node's allocation, after allocating the parts that it lacks. With
// WaitForAgent, it returns the zero Node before the node's agent has written its annotations. A
// node keeps its allocation if its annotation is changed.
//
// If the annotation of a new node has another node's id or subnet, the node gets others, and
// conflict is the reason. Node returns ErrInvalid (wrapped) if the node's subnets are outside the
// cluster's, and ErrExhausted (wrapped) if nothing is left. podsOf returns the pods of a node.
func (a *Allocator) Node(
	n *corev1.Node,
	podsOf func(node string) []*corev1.Pod,
) (node Node, conflict, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	conflict = a.holdNode(n, podsOf)
	if err := a.nodes.CheckInside(n.Name); err != nil {
		return Node{}, conflict, fmt.Errorf("%w: remove annotation %s for another, or add its network to the cluster's",
			err, annotation.NodeSubnets)
	}

	if a.settings.WaitForAgent && a.nodes.Held(n.Name) == nil && n.Annotations[annotation.ChassisID] == "" {
		return Node{}, conflict, nil // until then, an administrator may annotate the subnet
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

// holdNode allocates the values in the node's annotations, unless the node has an allocation. It
// replaces a subnet outside the cluster's by the annotated one. It returns ErrTaken (wrapped) if
// another node has a value.
//
// If podsOf is not nil, and the node gets its subnets now, it also allocates the annotated
// addresses of the node's pods. So if a node is deleted and created again, other pods do not get
// them.
func (a *Allocator) holdNode(n *corev1.Node, podsOf func(node string) []*corev1.Pod) error {
	var errs []error
	if id, err := annotation.ParseNodeID(n.Annotations); err == nil && !a.nodes.HasID(n.Name) {
		errs = append(errs, a.nodes.HoldID(n.Name, id))
	}

	// The cluster's subnets may have changed since the node got its own.
	if a.nodes.CheckInside(n.Name) != nil {
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
		a.recoverPods(pods)
	}

	return errors.Join(errs...)
}

// older orders objects by age, then by namespace and name.
func older[T metav1.Object](x, y T) int {
	return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time),
		cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
}

// join returns the join addresses of the node with the id.
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

// RecordWritten records that the pod's annotations have its allocation. From then on, a change of
// the annotations does not change the allocation.
func (a *Allocator) RecordWritten(pod Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()

	delete(a.unwritten, pod)
}

// ReleaseNode releases the node's allocation and reports whether it had one.
func (a *Allocator) ReleaseNode(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	delete(a.macs, name)

	return a.nodes.Release(name)
}

// ReleasePods releases all pods of that name except those with the UIDs to keep.
func (a *Allocator) ReleasePods(name string, keep ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.pods.Release(name, keep...)
	maps.DeleteFunc(a.unwritten,
		func(p Pod, _ bool) bool { return p.Name == name && !slices.Contains(keep, p.UID) })
}

// TakeFreed returns the pods' addresses that were released since the last call, for owners that
// wait because of an UnavailableError.
func (a *Allocator) TakeFreed() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.pods.TakeFreed()
}

// Nodes returns the names of the nodes with subnets, in no order.
func (a *Allocator) Nodes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	return slices.Collect(maps.Keys(a.nodes.All()))
}

// Pods returns the addresses of all pods with an allocation.
func (a *Allocator) Pods() map[Pod][]netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()

	out := map[Pod][]netip.Prefix{}
	for _, p := range a.pods.All() {
		out[p] = a.pods.Held(p)
	}

	return out
}

// Usage says how many subnets and addresses are in use, and for how many is room.
type Usage struct {
	Nodes     int                                       // nodes with subnets
	Addresses int                                       // addresses of pods
	Full      int                                       // nodes' subnets without a free address
	Fullest   []SubnetUsage                             // nodes' subnets with the largest used parts, the fullest first
	Cluster   map[netip.Prefix]struct{ Used, Room int } // by cluster subnet: numbers of nodes' subnets
}

// SubnetUsage is the usage of one subnet of a node, in addresses of pods.
type SubnetUsage struct {
	Node       string
	Subnet     netip.Prefix
	Used, Room int
}

// share returns the used part of the subnet, from 0 to 1. A subnet without room is full.
func (u SubnetUsage) share() float64 {
	if u.Room == 0 {
		return 1
	}

	return float64(u.Used) / float64(u.Room)
}

// Usage returns the usage of all subnets, with the n fullest ones of nodes.
func (a *Allocator) Usage(n int) Usage {
	a.mu.Lock()
	defer a.mu.Unlock()

	u := Usage{Nodes: a.nodes.Len(), Addresses: a.pods.Len(), Cluster: a.nodes.Capacity()}
	for node, subnets := range a.nodes.All() {
		for _, s := range subnets {
			usage := SubnetUsage{node, s, a.pods.Used(s), Capacity(s)}
			if usage.Used >= usage.Room {
				u.Full++
			}

			u.Fullest = append(u.Fullest, usage)
		}
	}

	slices.SortFunc(u.Fullest, func(x, y SubnetUsage) int {
		return cmp.Or(cmp.Compare(y.share(), x.share()), cmp.Compare(x.Node, y.Node),
			x.Subnet.Addr().Compare(y.Subnet.Addr()))
	})
	u.Fullest = u.Fullest[:min(n, len(u.Fullest))]

	return u
}
