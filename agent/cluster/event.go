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

// changed handles a change of an object; old or now is nil if it did not or does not exist.
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

	before, _ := old.(*corev1.Pod)
	after, _ := now.(*corev1.Pod)

	if before != nil && after != nil &&
		before.Annotations[annotation.PodNetworks] != after.Annotations[annotation.PodNetworks] {
		c.handlers.Readdressed()
	}

	was, _ := old.(*corev1.Node)
	is, _ := now.(*corev1.Node)

	switch {
	case was == nil && is == nil:
	case was != nil && was.Name == c.node || is != nil && is.Name == c.node:
		c.wakeAll() // pods may be waiting for a change of the Node
		c.handlers.Node()
	case was == nil || is == nil ||
		!slices.Equal(peerAddrs(was), peerAddrs(is)) ||
		!slices.Equal(annotation.HostAddresses(was), annotation.HostAddresses(is)) ||
		was.Annotations[annotation.ChassisID] != is.Annotations[annotation.ChassisID] ||
		was.Annotations[annotation.ChassisTakenBy] != is.Annotations[annotation.ChassisTakenBy]:
		c.handlers.Peers()
	}
}
