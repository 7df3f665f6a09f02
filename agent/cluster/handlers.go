package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// Handlers are called after a change, from the informers' goroutines. They must not block. Nil
// handlers are skipped.
type Handlers struct {
	Node    func()            // the agent's own Node has changed
	Peers   func()            // the result of Peers or ChassisTaken has changed
	Service func(service.Key) // the result of Objects has changed for this key
	Synced  func()            // once, when all lists are complete

	Readdressed func() // the controller's annotation of a pod on the node has changed
	APIServers  func() // the result of APIServers may have changed
	Pool        func() // the result of Pool has changed, in underlay mode
}

// filled replaces nil handlers by empty functions.
func (h Handlers) filled() Handlers {
	for _, f := range []*func(){&h.Node, &h.Peers, &h.Synced, &h.Readdressed, &h.APIServers, &h.Pool} {
		if *f == nil {
			*f = func() {}
		}
	}

	if h.Service == nil {
		h.Service = func(service.Key) {}
	}

	return h
}

// watch connects the informers to the handlers.
func (c *Cluster) watch() error {
	for _, i := range c.informers() {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.changed(nil, o) },
			UpdateFunc: c.changed,
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}

				c.changed(o, nil)
			},
		}); err != nil {
			return fmt.Errorf("watch %s: %w", i.Name, err)
		}
	}

	return nil
}

// changed calls the handlers for a change of an object. old is nil for a new object, and now is nil
// for a deleted one. Both forms are handled, because a slice may have moved to another Service.
func (c *Cluster) changed(old, now any) {
	for _, o := range []any{old, now} {
		switch o := o.(type) {
		case *corev1.Service:
			c.handlers.Service(service.Key{Kind: service.KindService, Namespace: o.Namespace, Name: o.Name})
		case *discoveryv1.EndpointSlice:
			if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
				c.handlers.Service(service.Key{Kind: service.KindService, Namespace: o.Namespace, Name: name})

				if service.IsAPIServerService(o.Namespace, name) {
					c.handlers.APIServers()
				}
			}
		case *corev1.ConfigMap:
			c.handlers.Pool()
		case *corev1.Pod:
			c.wakeWaiters(o)

			if service.HasHostPorts(o) {
				c.handlers.Service(service.Key{Kind: service.KindPod, Namespace: o.Namespace, Name: o.Name})
			}
		}
	}

	oldPod, _ := old.(*corev1.Pod)
	newPod, _ := now.(*corev1.Pod)

	if oldPod != nil && newPod != nil &&
		oldPod.Annotations[annotation.PodNetworks] != newPod.Annotations[annotation.PodNetworks] {
		c.handlers.Readdressed()
	}

	oldNode, _ := old.(*corev1.Node)
	newNode, _ := now.(*corev1.Node)
	c.nodeChanged(oldNode, newNode)
}

// nodeChanged calls the handlers for a change of a Node. Both arguments are nil for objects of
// other types.
func (c *Cluster) nodeChanged(old, now *corev1.Node) {
	switch {
	case old == nil && now == nil:
	case old != nil && old.Name == c.node || now != nil && now.Name == c.node:
		c.wakeAll() // pods may be waiting for a change of the Node
		c.handlers.Node()
	case old == nil || now == nil || c.peerDiffers(old, now):
		c.handlers.Peers()
	}
}

// peerDiffers reports whether two states of another Node differ in a field that Peers or
// ChassisTaken reads.
func (c *Cluster) peerDiffers(old, now *corev1.Node) bool {
	return !slices.Equal(c.peerAddrs(old), c.peerAddrs(now)) ||
		!slices.Equal(c.trust.HostAddresses(old), c.trust.HostAddresses(now)) ||
		old.Annotations[annotation.ChassisID] != now.Annotations[annotation.ChassisID] ||
		old.Annotations[annotation.ChassisTakenBy] != now.Annotations[annotation.ChassisTakenBy]
}
