package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// maxNodes bounds node ids; a smaller join subnet bounds them further.
const maxNodes = 1 << 16

// books are all allocations of the cluster, as the leader knows them.
type books struct {
	join   []netip.Prefix
	first  bool // the first generation's annotation is written, too
	joined bool // a node has a subnet when its agent has come
	log    *slog.Logger
	tell   func(plan.Key, string, error) // an event on the key's object

	mu    sync.Mutex // guards the rest: metrics read while the worker writes
	nodes *ipam.Nodes
	pods  *ipam.Pods
	macs  map[string][]string     // of nodes' own ports, by node
	ports map[ipam.Pod]nb.PodPort // what OVN had of pods that are not recovered yet
	// unwritten are pods whose addresses were chosen and are in no annotation yet, as far as is known.
	unwritten map[ipam.Pod]bool
}

func newBooks(l *Loop) *books {
	return &books{
		join: l.cluster.Config.JoinSubnets, first: l.first, joined: l.joined, log: l.log, tell: l.report,
		nodes: ipam.NewNodes(l.subnets, maxNodes), pods: ipam.NewPods(),
		macs: map[string][]string{}, ports: map[ipam.Pod]nb.PodPort{},
		unwritten: map[ipam.Pod]bool{},
	}
}

// openBooks writes down what OVN and annotations say. It asks the API server itself:
// the informers may not have seen yet what the last leader wrote last. On return
// they have. It waits for the database: without what that says of pods, their annotations
// would have to be believed. It fails only when the context ends.
func (l *Loop) openBooks(ctx context.Context) (*books, error) {
	wait := retryMin
	for {
		for l.db.Ready() != nil {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-l.db.Connected():
			}
		}
		b, err := l.readBooks(ctx)
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.log.Warn("cannot read allocations", "err", err, "retry", wait)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, retryMax)
	}
}

func (l *Loop) readBooks(ctx context.Context) (*books, error) {
	b := newBooks(l)
	lists, err := l.listAll(ctx)
	if err != nil {
		return nil, err
	}
	ports, err := l.db.PodPorts()
	if err != nil {
		return nil, err
	}
	for i, r := range l.resources {
		listed := lists[i]
		// The older of two that claim the same keeps it.
		switch r.name {
		case nodesResource:
			slices.SortFunc(listed, older)
			b.recoverNodes(listed)
		case podsResource:
			slices.SortFunc(listed, older)
			b.recoverPods(listed, ports)
		}
		if err := r.catchUp(ctx, listed, l.log); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// listAll asks the API server for all resources at once: it takes as long as the
// pods alone.
func (l *Loop) listAll(ctx context.Context) ([][]metav1.Object, error) {
	lists := make([][]metav1.Object, len(l.resources))
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range l.resources {
		group.Go(func() (err error) {
			lists[i], err = r.all(ctx)
			return err
		})
	}
	return lists, group.Wait()
}

// older sorts by age, of the same age by key.
func older(x, y metav1.Object) int {
	return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time),
		cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
}

// allocate returns the patch that gives the key's object what it lacks, nil if
// it has all or needs nothing.
func (b *books) allocate(c *plan.Cluster, k plan.Key) (*patch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch k.Kind {
	case plan.KindNode:
		if n := c.Node(k.Name); n != nil {
			return b.allocateNode(c, n)
		}
	case plan.KindPod:
		if p := c.Pod(k.Namespace, k.Name); plan.NeedsPort(p) {
			return b.allocatePod(c, p)
		}
	}
	return nil, nil
}

// holdNode holds what the node's annotations say, where nothing is held yet. A
// subnet outside of the cluster's gives way to what the annotation says now.
// With the cluster it also holds for the node's pods what their annotations
// say: a node that comes back shall not give their addresses to others.
func (b *books) holdNode(c *plan.Cluster, n *corev1.Node) error {
	var errs []error
	if id, err := annotation.ParseNodeID(n.Annotations); err == nil && !b.nodes.HasID(n.Name) {
		errs = append(errs, b.nodes.HoldID(n.Name, id))
	}
	if b.nodes.Outside(n.Name) != nil {
		b.nodes.ReleaseSubnets(n.Name)
	}
	subnets, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil || b.nodes.Held(n.Name) != nil {
		return errors.Join(errs...)
	}
	errs = append(errs, b.nodes.HoldSubnets(n.Name, subnets))
	b.macs[n.Name] = nodeMACs(n, b.nodes.Held(n.Name))
	if c != nil && b.nodes.Held(n.Name) != nil {
		pods := c.NodePods(n.Name)
		slices.SortFunc(pods, func(x, y *corev1.Pod) int { return older(x, y) })
		for _, p := range pods {
			b.recoverPod(p)
		}
	}
	return errors.Join(errs...)
}

// allocateNode: what a node was given stays its own, whatever becomes of its
// annotation. It gets another id or subnet if its annotation came with another node's,
// and none at all while that is outside of the cluster's.
func (b *books) allocateNode(c *plan.Cluster, n *corev1.Node) (*patch, error) {
	if err := b.holdNode(c, n); err != nil {
		b.tell(plan.NodeKey(n.Name), reasonReallocated, err)
	}
	if err := b.nodes.Outside(n.Name); err != nil {
		return nil, fmt.Errorf("%w: remove annotation %s for another, or add its network to the cluster's", err, annotation.NodeSubnets)
	}
	if b.joined && b.nodes.Held(n.Name) == nil && n.Annotations[annotation.ChassisID] == "" {
		return nil, nil // who sets it up may have a subnet for it
	}
	id, err := b.nodes.ID(n.Name)
	if err != nil {
		return nil, err
	}
	join, err := b.joinOf(n.Name, id)
	if err != nil {
		return nil, err
	}
	subnets, err := b.nodes.Subnets(n.Name)
	if err != nil {
		return nil, err
	}
	b.macs[n.Name] = nodeMACs(n, subnets)
	want := map[string]string{}
	if have, err := annotation.ParseNodeID(n.Annotations); err != nil || have != id {
		want[annotation.NodeID] = strconv.Itoa(id)
	}
	if have, err := annotation.ParseNodeSubnets(n.Annotations); err != nil || !slices.Equal(have, subnets) {
		want[annotation.NodeSubnets] = annotation.FormatNodeSubnets(subnets)
	}
	if have, err := annotation.ParseJoin(n.Annotations); err != nil || have != join {
		want[annotation.NodeJoin] = annotation.FormatJoin(join)
	}
	return newPatch(&n.ObjectMeta, want), nil
}

func (b *books) joinOf(node string, id int) (join annotation.Join, err error) {
	for _, s := range b.join {
		a, err := ipam.JoinAddress(s, id)
		if err != nil {
			return join, fmt.Errorf("allocate join address for node %q: %w", node, err)
		}
		if a.Addr().Is4() {
			join.IPv4 = a
		} else {
			join.IPv6 = a
		}
	}
	return join, nil
}
