package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// proxied selects the slices that kube-proxy would serve. It excludes slices of headless Services,
// which are for DNS, and those of other proxies.
const proxied = "!" + corev1.IsHeadlessService + ",!" + service.ProxyNameLabel

// byService is the index of slices by Service.
const byService = "service"

func serviceOf(o any) ([]string, error) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}

	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
}

// Keys returns the keys of all objects that may have frontends: all Services, and the pods with
// host ports. It returns false while they are not known.
func (c *Cluster) Keys() ([]service.Key, bool) {
	if c.Missing() != "" {
		return nil, false
	}

	services := c.services.GetStore().List()

	out := make([]service.Key, 0, len(services))
	for _, o := range services {
		s := o.(*corev1.Service)
		out = append(out, service.Key{Kind: service.KindService, Namespace: s.Namespace, Name: s.Name})
	}

	for _, o := range c.pods.GetStore().List() {
		if p := o.(*corev1.Pod); service.HasHostPorts(p) {
			out = append(out, service.Key{Kind: service.KindPod, Namespace: p.Namespace, Name: p.Name})
		}
	}

	return out, true
}

// Objects returns the objects of a key. They must not be modified.
func (c *Cluster) Objects(k service.Key) service.Objects {
	var out service.Objects

	name := k.Namespace + "/" + k.Name
	if k.Kind == service.KindPod {
		out.Pod, _ = get[corev1.Pod](c.pods.GetStore(), name)
		return out
	}

	var known bool
	if out.Service, known = get[corev1.Service](c.services.GetStore(), name); !known {
		return out
	}

	out.Slices = c.slicesOf(name)

	return out
}

// slicesOf returns the slices of the Service with a name of the form namespace/name.
func (c *Cluster) slicesOf(name string) []*discoveryv1.EndpointSlice {
	found, err := c.slices.GetIndexer().ByIndex(byService, name)
	if err != nil {
		panic(err) // the index was added in New
	}

	var out []*discoveryv1.EndpointSlice
	for _, o := range found {
		out = append(out, o.(*discoveryv1.EndpointSlice))
	}

	return out
}

// APIServers returns the API servers in the slices of default/kubernetes, except those inside the
// service networks.
func (c *Cluster) APIServers(services []netip.Prefix) service.ControlPlane {
	return service.APIServers(c.slicesOf(corev1.NamespaceDefault+"/kubernetes"), services)
}

// Peers returns the sorted addresses of the other nodes. known holds the addresses from their
// agents, or else their internal addresses. hosts holds all host addresses in their Nodes.
func (c *Cluster) Peers() (known, hosts []netip.Addr) {
	for _, o := range c.nodes.GetStore().List() {
		if n := o.(*corev1.Node); n.Name != c.node {
			known, hosts = append(known, peerAddrs(n)...), append(hosts, annotation.HostAddresses(n)...)
		}
	}

	slices.SortFunc(known, netip.Addr.Compare)
	slices.SortFunc(hosts, netip.Addr.Compare)

	return slices.Compact(known), slices.Compact(hosts)
}

// Zone returns the zone label of the agent's own Node, or "".
func (c *Cluster) Zone() string {
	if n := c.Node(); n != nil {
		return n.Labels[corev1.LabelTopologyZone]
	}

	return ""
}

// deletionTaint is set by the cluster autoscaler on a node that it is about to delete (kube-proxy's
// KEP 3836).
const deletionTaint = "ToBeDeletedByClusterAutoscaler"

// Leaving reports whether the agent's own Node is about to be deleted.
func (c *Cluster) Leaving() bool {
	n := c.Node()

	return n != nil && (n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == deletionTaint }))
}

// Drained reports whether the agent's own gateway is drained.
func (c *Cluster) Drained() bool {
	n := c.Node()
	return n != nil && annotation.Drained(n.Annotations)
}

// Addresses returns the InternalIPs of the agent's own Node, and the gateway's addresses in its
// annotation. Both are empty while the Node is not known.
func (c *Cluster) Addresses() (internal, annotated []netip.Addr) {
	n := c.Node()
	if n == nil {
		return nil, nil
	}

	// The agent will overwrite a malformed one.
	if own, err := annotation.ParseGateway(n.Annotations); err == nil {
		for _, p := range own.Addresses {
			annotated = append(annotated, p.Addr())
		}
	}

	return internalIPs(n), annotated
}

// HasChassis reports whether another Node has the system-id and keeps it.
func (c *Cluster) HasChassis(id string) bool {
	for _, o := range c.nodes.GetStore().List() {
		n := o.(*corev1.Node)
		if n.Name != c.node && n.Annotations[annotation.ChassisID] == id &&
			n.Annotations[annotation.ChassisTakenBy] == "" {
			return true
		}
	}

	return false
}

func internalIPs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr

	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			out = append(out, ip.Unmap())
		}
	}

	return out
}

// peerAddrs returns the addresses that another node's agent has published, also that of its tunnels.
// Without host addresses from the agent, it returns the Node's internal addresses instead.
func peerAddrs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr

	prefixes, err := annotation.ParseHostCIDRs(n.Annotations)
	for _, p := range prefixes {
		out = append(out, p.Addr().Unmap())
	}

	if err != nil || len(out) == 0 {
		out = internalIPs(n)
	}

	if a, ok := annotation.ParseTunnelAddress(n.Annotations); ok {
		out = append(out, a)
	}

	return out
}

func get[T any](store interface {
	GetByKey(key string) (any, bool, error)
}, key string,
) (*T, bool) {
	o, ok, err := store.GetByKey(key)
	if err != nil || !ok {
		return nil, false
	}

	t, ok := o.(*T)

	return t, ok
}
