package agent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// keepAnnotations exchanges annotations of the Node with the controller until ctx ends: see
// exchange.
func (a *agent) keepAnnotations(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{
		Name:   "node annotations",
		Wake:   a.nodeWake,
		Apply:  a.syncNode,
		Resync: time.Minute,
		Log:    a.log,
	})
}

// syncNode calls exchange and stores its error for /readyz.
func (a *agent) syncNode(ctx context.Context) error {
	err := a.exchange(ctx)

	text := ""
	if err != nil {
		text = err.Error()
	}

	a.nodeFault.Store(&text)
	a.ready.Changed.Trigger()

	return err
}

// exchange reads the annotations of the Node that the controller has written, the node's subnets
// and those of the gateway routers, and passes them to the agent's parts. Then it writes the
// agent's own annotations (nodeAnnotations) that the API server does not have yet. Faults that
// other parts report are not errors here.
func (a *agent) exchange(ctx context.Context) error {
	n, known := a.gateway.View().Node()
	if !known {
		return nil // reported by the gateway
	}

	a.mtu.Store(int64(a.cfg.PodMTU(n.Uplink.MTU, n.TunnelAddress(a.cfg.EncapIP))))

	if a.cluster.Missing() != "" {
		return nil // reported by the cluster
	}

	node := a.cluster.Node()
	if node == nil {
		return fmt.Errorf("node %s: the API server has no such Node", a.cfg.NodeName)
	}

	subnets, err := annotation.ParseNodeSubnets(node.Annotations)
	if err == nil { // otherwise the management port reports the missing subnets
		join := joinSubnets(node)

		a.management.Set(subnets, join, int(a.mtu.Load()))
		a.serveBFD(subnets, join)
		a.gateway.Inputs().SetSubnets(subnets, join)

		if err := a.syncMasquerade(ctx, subnets); err != nil {
			return err
		}
	}

	if len(n.Addresses) == 0 {
		return nil // reported by the gateway
	}

	a.gateway.Inputs().AddFormerAddresses(lostAddresses(node, n))

	if missing := a.unpublished(node, n, subnets); len(missing) > 0 {
		return a.cluster.Annotate(ctx, missing)
	}

	return nil
}

// unpublished returns the node's annotations that the API server does not have yet.
func (a *agent) unpublished(node *corev1.Node, n gateway.Node, subnets []netip.Prefix) map[string]string {
	routes := gatewayRoutes(node, n, a.neighbours.MAC)

	return differing(node, nodeAnnotations(a.cfg, n, routes, *a.chassis.Load(), subnets))
}

// unpublishedLine returns a line of /readyz about the annotations that the API server does not have
// yet, or "". Without them, the cluster uses outdated addresses of the node.
func (a *agent) unpublishedLine() string {
	n, known := a.gateway.View().Node()
	node := a.cluster.Node()

	if !known || node == nil || len(n.Addresses) == 0 {
		return "" // reported by other parts
	}

	subnets, _ := annotation.ParseNodeSubnets(node.Annotations) // see exchange

	missing := a.unpublished(node, n, subnets)
	if len(missing) == 0 {
		return ""
	}

	names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")

	return "node " + a.cfg.NodeName + ": the API server does not have its " + names + " yet"
}

// differing returns the annotations of want that the Node lacks. The missing annotation of routes
// is equal to the value without routes. An equivalent, more detailed gateway annotation of
// ovn-kubernetes stays.
func differing(node *corev1.Node, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool {
		published, exists := node.Annotations[k]

		switch {
		case published == v:
			return true
		case v == annotation.NoGatewayRoutes && !exists:
			return true
		}

		return k == annotation.GatewayConfig && annotation.SameGateway(published, v)
	})

	return out
}

// nodeAnnotations returns the agent's annotations of its Node. The management port's address
// depends on the subnet from the controller; with nil subnets it is omitted.
func nodeAnnotations(
	cfg Config,
	n gateway.Node,
	routes []annotation.Route,
	c chassis,
	subnets []netip.Prefix,
) map[string]string {
	mtu := cfg.PodMTU(n.Uplink.MTU, n.TunnelAddress(cfg.EncapIP))

	config := annotation.Gateway{Mode: annotation.GatewayModeDisabled}
	if !cfg.NoGateway {
		config = annotation.Gateway{
			Mode:        mode(cfg.Settings),
			VLAN:        int(cfg.VLAN),
			InterfaceID: cfg.Bridge + "_" + cfg.NodeName,
			MAC:         n.Uplink.MAC.String(),
			Addresses:   n.Addresses,
			NextHops:    n.NextHops,
			NodePorts:   cfg.NodePorts,
		}
	}

	if cfg.NoGateway {
		routes = nil
	}

	out := map[string]string{
		annotation.GatewayConfig: annotation.FormatGateway(config),
		annotation.GatewayRoutes: annotation.FormatGatewayRoutes(routes),
		annotation.ChassisID:     c.id,
		annotation.HostCIDRs:     annotation.FormatHostCIDRs(n.HostCIDRs),
		annotation.PodMTU:        strconv.Itoa(mtu),
		annotation.RoutablePods:  strconv.FormatBool(cfg.Routable),
		annotation.TunnelAddress: c.tunnel.String(),
		annotation.SNATPortRange: cfg.SNATPorts.String(),
	}
	if plan, err := management.PlanFor(subnets, nil); err == nil {
		out[annotation.ManagementMACs] = annotation.FormatManagementMAC(plan.MAC)
	}

	return out
}

// mode returns the gateway's mode as the annotation names it.
func mode(s gateway.Settings) string {
	if s.Local {
		return annotation.GatewayModeLocal
	}

	return annotation.GatewayModeShared
}

// gatewayRoutes returns the routes of the gateway router, n.Routes, as they are published. Default
// routes by the next hops of the annotation GatewayConfig are not among them.
//
// The router cannot resolve an IPv6 next hop of an IPv4 route. In such a route, the next hop is
// replaced by its stand-in, an IPv4 address (gateway.Node.StandIns), and the route also has the
// next hop's link-layer address, which mac returns. While mac does not know it, the route keeps the
// link-layer address that is published for it. If none is published, the route is left out.
func gatewayRoutes(
	node *corev1.Node,
	n gateway.Node,
	mac func(netip.Addr) net.HardwareAddr,
) []annotation.Route {
	published, _ := annotation.ParseGatewayRoutes(node.Annotations) // a malformed annotation is overwritten
	standIns := n.StandIns()

	var out []annotation.Route

	for _, hop := range n.Routes {
		r := annotation.Route{To: hop.Prefix, Via: hop.Via}
		if standIn, ok := standIns[hop.Via]; ok && hop.Prefix.Addr().Is4() {
			r.Via = standIn
			r.MAC = mac(hop.Via).String()

			isSame := func(o annotation.Route) bool { return o.To == r.To && o.Via == r.Via }
			if i := slices.IndexFunc(published, isSame); r.MAC == "" && i >= 0 {
				r.MAC = published[i].MAC
			}

			if r.MAC == "" {
				continue
			}
		}

		out = append(out, r)
	}

	return out
}

// lostAddresses returns the gateway addresses that the API server still has but the host has lost,
// for example while no agent ran.
func lostAddresses(node *corev1.Node, n gateway.Node) []netip.Addr {
	published, err := annotation.ParseGateway(node.Annotations)
	if err != nil {
		return nil // it will be overwritten
	}

	var out []netip.Addr

	for _, p := range published.Addresses {
		isSame := func(own netip.Prefix) bool { return own.Addr() == p.Addr() }
		if !slices.ContainsFunc(n.HostCIDRs, isSame) && !slices.ContainsFunc(n.Addresses, isSame) {
			out = append(out, p.Addr())
		}
	}

	return out
}

// joinSubnets returns the join networks, in which the gateway routers of all nodes have addresses,
// from the controller's annotation. The controller itself reports malformed annotations.
func joinSubnets(node *corev1.Node) []netip.Prefix {
	join, err := annotation.ParseJoin(node.Annotations)
	if err != nil {
		return nil
	}

	var out []netip.Prefix

	for _, p := range []netip.Prefix{join.IPv4, join.IPv6} {
		if p.IsValid() {
			out = append(out, p.Masked())
		}
	}

	return out
}
