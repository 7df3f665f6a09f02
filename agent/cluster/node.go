package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Peers returns addresses of the other nodes in two lists, each sorted and without duplicates.
// published has the addresses from which they send (peerAddrs). hosts has all addresses at which
// their hosts can be reached, also those of gateways and management ports. Both lists have only
// addresses that the cluster trusts: see annotation.Trust.
func (c *Cluster) Peers() (published, hosts []netip.Addr) {
	for _, o := range c.nodes.GetStore().List() {
		n := o.(*corev1.Node)
		if n.Name == c.node {
			continue
		}

		published = append(published, c.peerAddrs(n)...)
		hosts = append(hosts, c.trust.HostAddresses(n)...)
	}

	slices.SortFunc(published, netip.Addr.Compare)
	slices.SortFunc(hosts, netip.Addr.Compare)

	return slices.Compact(published), slices.Compact(hosts)
}

// Nodes returns the number of nodes.
func (c *Cluster) Nodes() int { return len(c.nodes.GetStore().ListKeys()) }

// Zone returns the zone label of the agent's own Node, or "".
func (c *Cluster) Zone() string {
	if n := c.Node(); n != nil {
		return n.Labels[corev1.LabelTopologyZone]
	}

	return ""
}

// deletionTaint is set by the cluster autoscaler on a node that it is about to delete. kube-proxy's
// health check reads it, too (KEP 3836).
const deletionTaint = "ToBeDeletedByClusterAutoscaler"

// Leaving reports whether the agent's own Node is about to be deleted.
func (c *Cluster) Leaving() bool {
	n := c.Node()

	return n != nil && (n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == deletionTaint }))
}

// Drained reports whether an operator has drained the agent's own gateway (ovnkube node
// drain-gateway).
func (c *Cluster) Drained() bool {
	n := c.Node()
	return n != nil && annotation.Drained(n.Annotations)
}

// Addresses returns the InternalIPs of the agent's own Node, and the gateway's addresses in its
// annotation GatewayConfig. Both are empty while the Node is not known.
func (c *Cluster) Addresses() (internal, annotated []netip.Addr) {
	n := c.Node()
	if n == nil {
		return nil, nil
	}

	// A malformed annotation is ignored, because the agent will overwrite it.
	if gateway, err := annotation.ParseGateway(n.Annotations); err == nil {
		for _, p := range gateway.Addresses {
			annotated = append(annotated, p.Addr())
		}
	}

	return internalIPs(n), annotated
}

// ChassisTaken reports whether another Node has the system-id, and the controller has not decided
// that this other Node must change it.
func (c *Cluster) ChassisTaken(id string) bool {
	for _, o := range c.nodes.GetStore().List() {
		n := o.(*corev1.Node)
		if n.Name != c.node && n.Annotations[annotation.ChassisID] == id &&
			n.Annotations[annotation.ChassisTakenBy] == "" {
			return true
		}
	}

	return false
}

// internalIPs returns the Node's addresses of the type InternalIP.
func internalIPs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr

	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			out = append(out, ip.Unmap())
		}
	}

	return out
}

// TrustedHosts returns those of the given addresses of the agent's own host that the whole cluster
// trusts. While the Node is not known, it returns all.
func (c *Cluster) TrustedHosts(addresses []netip.Prefix) []netip.Prefix {
	n := c.Node()
	if n == nil {
		return addresses
	}

	trusted, _, _ := c.trust.Split(n, addresses)

	return trusted
}

// peerAddrs returns the addresses from which another node sends: the trusted host addresses that
// its agent has published, or without any the Node's InternalIPs, and its tunnel address.
func (c *Cluster) peerAddrs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr

	prefixes, err := annotation.ParseHostCIDRs(n.Annotations)

	trusted, _, _ := c.trust.Split(n, prefixes)
	for _, p := range trusted {
		out = append(out, p.Addr().Unmap())
	}

	if err != nil || len(out) == 0 {
		out = internalIPs(n)
	}

	if a, ok := c.trust.TunnelAddress(n); ok {
		out = append(out, a)
	}

	return out
}
