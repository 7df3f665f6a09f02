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

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

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

	own := annotation.Gateway{Mode: annotation.GatewayModeDisabled}
	if !cfg.NoGateway {
		own = annotation.Gateway{
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
		annotation.GatewayConfig: annotation.FormatGateway(own),
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

// gatewayRoutes returns the gateway router's routes beside those by next hops. The router cannot
// resolve an IPv6 next hop of an IPv4 route, so the route has the link-layer address that mac
// returns. While mac does not know this address, the route keeps the published one. A route without
// any is left out.
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

			same := func(o annotation.Route) bool { return o.To == r.To && o.Via == r.Via }
			if was := slices.IndexFunc(published, same); r.MAC == "" && was >= 0 {
				r.MAC = published[was].MAC
			}

			if r.MAC == "" {
				continue
			}
		}

		out = append(out, r)
	}

	return out
}

func mode(s gateway.Settings) string {
	if s.Local {
		return annotation.GatewayModeLocal
	}

	return annotation.GatewayModeShared
}

// differing returns the annotations of want that the node lacks. An equivalent, more detailed
// gateway annotation of ovn-kubernetes stays.
func differing(node *corev1.Node, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool {
		_, set := node.Annotations[k]

		return node.Annotations[k] == v || v == annotation.NoGatewayRoutes && !set ||
			k == annotation.GatewayConfig && annotation.SameGateway(node.Annotations[k], v)
	})

	return out
}

// syncNode publishes the node's state to the controller and applies the controller's subnet to the
// management port.
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

// unpublished returns the node's annotations that the API server does not have yet.
func (a *agent) unpublished(node *corev1.Node, n gateway.Node, subnets []netip.Prefix) map[string]string {
	routes := gatewayRoutes(node, n, a.neighbours.MAC)

	return differing(node, nodeAnnotations(a.cfg, n, routes, *a.chassis.Load(), subnets))
}

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
	if err == nil {
		a.management.Set(subnets, joinSubnets(node), int(a.mtu.Load()))
		a.serveBFD(subnets, joinSubnets(node))
		a.gateway.Inputs().SetSubnets(subnets, joinSubnets(node))

		if err := a.syncMasquerade(ctx, subnets); err != nil {
			return err
		}
	}

	if len(n.Addresses) == 0 {
		return nil
	}

	a.gateway.Inputs().AddFormerAddresses(lost(node, n))

	if missing := a.unpublished(node, n, subnets); len(missing) > 0 {
		return a.cluster.Annotate(ctx, missing)
	}

	return nil
}

// lost returns the gateway addresses that the API server still has but the host has lost, for
// example while no agent ran.
func lost(node *corev1.Node, n gateway.Node) []netip.Addr {
	written, err := annotation.ParseGateway(node.Annotations)
	if err != nil {
		return nil // it will be overwritten
	}

	var out []netip.Addr

	for _, p := range written.Addresses {
		has := func(own netip.Prefix) bool { return own.Addr() == p.Addr() }
		if !slices.ContainsFunc(n.HostCIDRs, has) && !slices.ContainsFunc(n.Addresses, has) {
			out = append(out, p.Addr())
		}
	}

	return out
}

// unannotated returns the annotations that the API server does not have yet, or "". Until then the
// cluster uses outdated addresses of the node.
func (a *agent) unannotated() string {
	n, known := a.gateway.View().Node()
	node := a.cluster.Node()

	if !known || node == nil || len(n.Addresses) == 0 {
		return "" // reported by other parts
	}

	subnets, _ := annotation.ParseNodeSubnets(node.Annotations) // an error is reported by the management port

	missing := a.unpublished(node, n, subnets)
	if len(missing) == 0 {
		return ""
	}

	names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")

	return "node " + a.cfg.NodeName + ": the API server does not have its " + names + " yet"
}

// joinSubnets returns the networks of the gateway routers that the controller has assigned. The
// controller itself reports malformed annotations.
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
