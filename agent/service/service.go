package service

import (
	"net/netip"
	"slices"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// planService plans every port of the Service in each of its families. New removes the frontends
// that the node must not serve.
func planService(svc *model.Service, n *Node) *Plan {
	p := &Plan{Created: svc.Created, VIPs: slices.Clone(svc.External)}
	for _, is4 := range []bool{true, false} {
		if !svc.HasFamily(is4) {
			continue
		}

		a := addressesOf(svc, is4, n)
		for _, port := range svc.Ports {
			first := len(p.Frontends)
			endpoints := svc.Endpoints(port, is4, n.isHost, nil)
			p.addPort(svc, a, servicePort{port, model.ProtocolNumber(port.Protocol), endpoints}, n)

			for i := range p.Frontends[first:] {
				p.Frontends[first+i].Port = port.Number
			}
		}
	}

	return p
}

// addresses are the addresses of one family at which a Service is reachable.
type addresses struct {
	is4        bool
	cluster    []netip.Addr
	open       []netip.Addr // external addresses, for all clients
	ranged     []netip.Addr // external addresses restricted to the source ranges
	ranges     []netip.Prefix
	admitsNode bool         // the ranges include the node itself
	nodes      []netip.Addr // serve node ports
}

// addressesOf returns the addresses of one family. Cluster IPs that the host itself has are left to
// it.
func addressesOf(svc *model.Service, is4 bool, n *Node) addresses {
	out := addresses{
		is4:    is4,
		open:   model.OfFamily(svc.External, is4),
		ranges: svc.SourceRanges(is4),
		nodes:  n.outside(is4),
	}

	out.cluster = slices.DeleteFunc(model.OfFamily(svc.ClusterIPs, is4), n.owns)
	if len(out.ranges) > 0 {
		out.ranged = model.OfFamily(svc.Announced, is4)
		out.open = slices.DeleteFunc(out.open,
			func(a netip.Addr) bool { return slices.Contains(out.ranged, a) })
		out.admitsNode = slices.ContainsFunc(out.ranges,
			func(p netip.Prefix) bool { return slices.ContainsFunc(n.Addresses, p.Contains) })
	}

	return out
}

// servicePort is a port of a Service, with its endpoints of one family.
type servicePort struct {
	model.Port
	proto     uint8
	endpoints []model.Endpoint
}

// addPort plans one port of one family: its frontends of each kind, with the Group of their
// backends.
func (p *Plan) addPort(svc *model.Service, a addresses, port servicePort, n *Node) {
	g := groupsOf(svc, a, port, n)

	front := frontends{proto: port.proto, toSocket: g.external.Local.IsValid(), node: n}
	p.add(g.internal, front.internal(port.Number, a.cluster))
	p.add(g.external, front.external(port.Number, a.open))

	rangedFront := front
	rangedFront.toSocket = false // as the Group has no Local
	p.add(g.ranged, rangedFront.external(port.Number, a.ranged))

	if port.NodePort > 0 && n.NodePorts {
		p.add(g.external, front.nodePort(port.NodePort, a.is4, a.nodes))
	}

	if port.proto == model.NumberUDP {
		for _, e := range port.endpoints {
			if e.State > model.Gone {
				p.UDP = append(p.UDP, e.Addr)
			}
		}
	}
}

// portGroups are the Groups of a port, by the kind of its frontends.
type portGroups struct {
	internal Group // cluster IPs
	external Group // external addresses for all clients, and node ports
	ranged   Group // external addresses with source ranges
}

// groupsOf returns the Groups of a port. Backends are those for sockets of the node. Traffic from
// the node itself is internal, so by external addresses and node ports it reaches every endpoint of
// the cluster, whatever externalTrafficPolicy says (kube-proxy's nftables proxier, "short-circuit
// local traffic"). Local and Redirect are for traffic that arrives from outside, and follow
// externalTrafficPolicy.
func groupsOf(svc *model.Service, a addresses, port servicePort, n *Node) portGroups {
	near, here := port.endpointsFor(n)

	external := Group{Proto: port.proto, Affinity: svc.Affinity, Backends: addrs(near)}
	if n.Lookup && port.proto == model.NumberTCP && svc.ExternalLocal {
		external.Local = hostSocket(here, n)
	}

	if n.Local {
		external.Redirect = redirect(svc, port, a.cluster, here)
	}

	internal := external
	if svc.InternalLocal {
		internal.Backends = addrs(here)
	}

	// OVN and the host's nftables check that the ranges admit the client. Hooks at sockets do not. So
	// the Group has no Local, and it has backends for the node's sockets only if the ranges admit the
	// node.
	ranged := external
	ranged.Local = netip.AddrPort{}

	if n.Local {
		ranged.From = a.ranges
	}

	if !a.admitsNode {
		ranged.Backends = nil
	}

	return portGroups{internal, external, ranged}
}

// endpointsFor returns the endpoints that get new connections from clients on the node. near are
// those that the slices' hints give to the node, or all if the hints give none. here are those on
// the node, for the policies Local.
func (port servicePort) endpointsFor(n *Node) (near, here []model.Endpoint) {
	near = model.Usable(model.NewHints(port.endpoints).For(n.Name, n.Zone))
	if len(near) == 0 {
		near = model.Usable(port.endpoints)
	}

	for _, e := range port.endpoints {
		if n.local(e) {
			here = append(here, e)
		}
	}

	return near, model.Usable(here)
}

// redirect returns Group.Redirect of a port's external frontends: the endpoints here if the Service
// has externalTrafficPolicy Local, otherwise the first cluster IP.
func redirect(
	svc *model.Service,
	port servicePort,
	cluster []netip.Addr,
	here []model.Endpoint,
) []netip.AddrPort {
	if svc.ExternalLocal {
		return addrs(here)
	}

	if len(cluster) == 0 {
		return nil
	}

	return []netip.AddrPort{netip.AddrPortFrom(cluster[0], port.Number)}
}

// hostSocket returns Group.Local: the endpoint in this host's network that serves a Service of
// externalTrafficPolicy Local, or the zero value. Only addresses that the host has count: a slice
// may name this node beside any address, and packets for another address would reach a listener on
// all addresses, past the kept ports and the host's firewall. Callers use it for TCP only: a
// connection keeps the port it was made to, while a UDP socket would answer from the endpoint's
// port.
func hostSocket(here []model.Endpoint, n *Node) netip.AddrPort {
	for _, e := range here {
		if n.owns(e.Addr.Addr()) {
			return e.Addr
		}
	}

	return netip.AddrPort{}
}

// addrs returns the addresses of endpoints.
func addrs(in []model.Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range in {
		out = append(out, e.Addr)
	}

	return out
}
