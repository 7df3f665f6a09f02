package service

import (
	"net/netip"
	"slices"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// planService plans every port of the Service in each of its families.
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

// addPort plans one port of one family. Sockets of the node reach every endpoint of the cluster by
// external addresses and node ports, whatever externalTrafficPolicy says: traffic from the node
// itself is internal (kube-proxy's nftables proxier, "short-circuit local traffic").
func (p *Plan) addPort(svc *model.Service, a addresses, port servicePort, n *Node) {
	// near are the endpoints that the slices' hints give to this node, or all of them. here are
	// those on this node, for the policies Local.
	near := model.Usable(model.NewHints(port.endpoints).For(n.Name, n.Zone))
	if len(near) == 0 {
		near = model.Usable(port.endpoints)
	}

	var here []model.Endpoint

	for _, e := range port.endpoints {
		if n.local(e) {
			here = append(here, e)
		}
	}

	here = model.Usable(here)

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

	ranged := external // OVN and the host's nftables check the client; a socket hook would not
	ranged.Local = netip.AddrPort{}

	if n.Local {
		ranged.From = a.ranges
	}

	if !a.admitsNode {
		ranged.Backends = nil
	}

	front := frontends{proto: port.proto, toSocket: external.Local.IsValid(), node: n}
	p.add(internal, front.internal(port.Number, a.cluster))
	p.add(external, front.external(port.Number, a.open))

	rangedFront := front
	rangedFront.toSocket = false // as ranged has no Local
	p.add(ranged, rangedFront.external(port.Number, a.ranged))

	if port.NodePort > 0 && n.NodePorts {
		p.add(external, front.nodePort(port.NodePort, a.is4, a.nodes))
	}

	if port.proto == model.NumberUDP {
		for _, e := range port.endpoints {
			if e.State > model.Gone {
				p.UDP = append(p.UDP, e.Addr)
			}
		}
	}
}

// redirect returns the Redirect list of a Group.
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

// hostSocket returns the endpoint in this host's network that serves a Service of
// externalTrafficPolicy Local, or the zero value. Only addresses that the host has count: a slice
// may name this node beside any address, and packets for another address would reach a listener on
// all addresses, past the kept ports and the host's firewall. It is for TCP only: a connection
// keeps the port it was made to, while a UDP socket would answer from the endpoint's port.
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
