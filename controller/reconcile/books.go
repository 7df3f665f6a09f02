package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// maxNodes bounds node ids; a smaller join subnet bounds them further.
const maxNodes = 1 << 16

// books are all allocations of the cluster, as the leader knows them.
type books struct {
	nodes *ipam.Nodes
	pods  *ipam.Pods
	join  []netip.Prefix
	log   *slog.Logger
}

// openBooks writes down what annotations say. It asks the API server itself:
// the informers may not have seen yet what the last leader wrote last. It
// fails only when the context ends.
func (l *Loop) openBooks(ctx context.Context) (*books, error) {
	wait := retryMin
	for {
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
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	b := &books{
		nodes: ipam.NewNodes(l.subnets, maxNodes), pods: ipam.NewPods(),
		join: l.cluster.Config.JoinSubnets, log: l.log,
	}
	// The older of two that claim the same keeps it.
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return older(&a.ObjectMeta, &b.ObjectMeta) })
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return older(&a.ObjectMeta, &b.ObjectMeta) })
	for i := range nodes.Items {
		b.holdNode(&nodes.Items[i])
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if network, err := annotation.ParsePod(p.Annotations); err == nil && plan.NeedsPort(p) {
			b.note(b.pods.Hold(owner(p), network.Addresses))
		}
	}
	return b, nil
}

func older(a, b *metav1.ObjectMeta) int {
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

func (b *books) note(err error) {
	if err != nil {
		b.log.Warn("allocation found twice", "err", err)
	}
}

func (b *books) holdNode(n *corev1.Node) {
	if id, err := annotation.ParseNodeID(n.Annotations); err == nil {
		b.note(b.nodes.HoldID(n.Name, id))
	}
	if subnets, err := annotation.ParseNodeSubnets(n.Annotations); err == nil {
		b.note(b.nodes.HoldSubnets(n.Name, subnets))
	}
}

func owner(p *corev1.Pod) ipam.Pod {
	return ipam.Pod{Name: p.Namespace + "/" + p.Name, UID: string(p.UID)}
}

// allocate returns the patch that gives the key's object what it lacks, nil if
// it has all or needs nothing.
func (b *books) allocate(c *plan.Cluster, k plan.Key) (*patch, error) {
	switch k.Kind {
	case plan.KindNode:
		if n := c.Node(k.Name); n != nil {
			return b.allocateNode(n)
		}
	case plan.KindPod:
		if p := c.Pod(k.Namespace, k.Name); plan.NeedsPort(p) {
			return b.allocatePod(c, p)
		}
	}
	return nil, nil
}

func (b *books) allocateNode(n *corev1.Node) (*patch, error) {
	b.holdNode(n)
	id, err := b.nodes.ID(n.Name)
	if err != nil {
		return nil, err
	}
	subnets, err := b.nodes.Subnets(n.Name)
	if err != nil {
		return nil, err
	}
	var join annotation.Join
	for _, s := range b.join {
		a, err := ipam.JoinAddress(s, id)
		if err != nil {
			return nil, fmt.Errorf("allocate join address for node %q: %w", n.Name, err)
		}
		if a.Addr().Is4() {
			join.IPv4 = a
		} else {
			join.IPv6 = a
		}
	}
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

// allocatePod: addresses that an annotation gives are the pod's unless another
// has them or they are not of its node; then it gets others. A node without
// subnets has none to give yet.
func (b *books) allocatePod(c *plan.Cluster, p *corev1.Pod) (*patch, error) {
	n := c.Node(p.Spec.NodeName)
	if n == nil {
		return nil, nil
	}
	subnets, err := annotation.ParseNodeSubnets(n.Annotations)
	if errors.Is(err, annotation.ErrNotSet) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	}
	network, err := annotation.ParsePod(p.Annotations)
	if err == nil && inside(network.Addresses, subnets) {
		err := b.pods.Hold(owner(p), network.Addresses)
		if err == nil {
			return nil, nil
		}
		b.note(err)
	}
	addresses, err := b.pods.Allocate(owner(p), subnets)
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	}
	network = annotation.Pod{Addresses: addresses, MAC: plan.MAC(addresses[0].Addr())}
	for _, s := range subnets {
		network.Gateways = append(network.Gateways, plan.RouterAddress(s).Addr())
	}
	return newPatch(&p.ObjectMeta, map[string]string{annotation.PodNetworks: annotation.FormatPod(network)}), nil
}

func inside(addresses, subnets []netip.Prefix) bool {
	for _, a := range addresses {
		if !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Masked() == a.Masked() }) {
			return false
		}
	}
	return true
}

// release forgets what the key's object no longer has, now that its rows are gone.
func (b *books) release(c *plan.Cluster, k plan.Key) {
	switch k.Kind {
	case plan.KindNode:
		if c.Node(k.Name) == nil {
			b.nodes.Release(k.Name)
		}
	case plan.KindPod:
		keep := ""
		if p := c.Pod(k.Namespace, k.Name); plan.NeedsPort(p) {
			keep = string(p.UID)
		}
		b.pods.Release(k.Namespace+"/"+k.Name, keep)
	}
}
