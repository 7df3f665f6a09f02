package gateway

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// This file interprets a dump of conntrack. It is pure; track.go reads the dumps.
//
// Of a connection that OVN translates (SNAT), Original has the pod's address, and Reply has the
// packets that the remote sends back: from the remote to the node's address and a port that OVN has
// chosen. So the local side of a connection is Reply.Dst, and its remote side is Reply.Src.
//
// A dump has connections of these zones:
//
//   - 0: the host's own
//   - below openflow.PredecessorZone: those that ovn-controller assigns to OVN's routers and pods
//   - openflow.PredecessorZone: of another gateway. The helper of the first generation commits only
//     pods' connections there. ovn-kubernetes commits those of the host as well, with hostMark.
//   - ourZones and above: of the agent's flows for the hairpin and for fragments
const (
	hostMark = 2 // ovn-kubernetes' mark of the host's connections in openflow.PredecessorZone
	ourZones = openflow.PredecessorZone + 1
)

// connectionsOutside returns OVN's connections on the node's addresses with a local port outside of
// the range, sorted. If that is the SNAT range, they began before a takeover (see the package).
func connectionsOutside(
	ports cluster.PortRange,
	tracked []ovs.TrackedConnection,
	node []netip.Addr,
) []verdict.FlowKey {
	var out []verdict.FlowKey

	for _, t := range tracked {
		if !isOfOVN(t) {
			continue
		}

		k := verdict.FlowKey{Proto: t.Proto, Remote: t.Reply.Src, Local: t.Reply.Dst}
		if ports.Contains(k.Local.Port()) || k.Local.Port() == 0 || !slices.Contains(node, k.Local.Addr()) {
			continue
		}

		out = append(out, k)
	}

	slices.SortFunc(out, compareFlows)

	return slices.Compact(out)
}

// isOfOVN reports whether a connection belongs to OVN and not to the host. In OVN's own zones, it
// must be translated. In the zone of another gateway, it must not have the mark of the host's
// connections.
func isOfOVN(t ovs.TrackedConnection) bool {
	switch {
	case t.Zone == 0, t.Zone >= ourZones:
		return false
	case t.Zone == openflow.PredecessorZone:
		return t.Mark != hostMark
	}

	isTranslated := t.Original.Src != t.Reply.Dst // otherwise it only passes through

	return isTranslated
}

// withoutHostFlows returns the connections that no host socket owns. A connection of a pod that
// ended lately may have the addresses and ports of one of the host, and the host takes precedence.
// TCP listeners own no connection.
func withoutHostFlows(flows []verdict.FlowKey, sockets []link.Socket) []verdict.FlowKey {
	byPort := map[uint16][]link.Socket{}
	for _, s := range sockets {
		byPort[s.Local.Port()] = append(byPort[s.Local.Port()], s)
	}

	return slices.DeleteFunc(flows, func(k verdict.FlowKey) bool {
		return slices.ContainsFunc(byPort[k.Local.Port()], func(s link.Socket) bool { return owns(s, k) })
	})
}

// owns reports whether packets of the connection reach the socket. The caller has compared the
// local ports. A socket at :: may receive IPv4 as well. An unconnected UDP socket receives from any
// remote.
func owns(s link.Socket, k verdict.FlowKey) bool {
	bound, local := s.Local.Addr(), k.Local.Addr()
	receivesAll := bound.IsUnspecified() && (bound.Is6() || local.Is4())
	isUnconnected := !s.Remote.IsValid() && s.Proto == unix.IPPROTO_UDP

	return s.Proto == k.Proto && (bound == local || receivesAll) && (s.Remote == k.Remote || isUnconnected)
}

// compareFlows orders connections. The order has no meaning.
func compareFlows(a, b verdict.FlowKey) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
}

// containsFlow reports whether a sorted list contains the connection. On a busy node the list is
// long.
func containsFlow(list []verdict.FlowKey, k verdict.FlowKey) bool {
	_, found := slices.BinarySearchFunc(list, k, compareFlows)
	return found
}

// PortUse is the number of ports of the SNAT range that connections from one of the node's
// addresses to one remote occupy.
type PortUse struct {
	Proto  uint8
	Remote netip.AddrPort
	Ports  int
}

// countPortUse returns the use of the range per remote, fullest first. A port in use for one remote
// is free for any other. Each of the node's addresses has all ports, so it has results of its own.
func countPortUse(tracked []ovs.TrackedConnection, node []netip.Addr, ports cluster.PortRange) []PortUse {
	type pair struct {
		proto  uint8
		remote netip.AddrPort
		local  netip.Addr
	}

	used := map[pair]map[uint16]struct{}{} // sets: a connection may be in several zones

	for _, t := range tracked {
		local := t.Reply.Dst

		isOfRouter := t.Zone != 0 && t.Zone < openflow.PredecessorZone
		if !isOfRouter || !isOfOVN(t) {
			continue
		}

		if !slices.Contains(node, local.Addr()) || !ports.Contains(local.Port()) {
			continue
		}

		p := pair{t.Proto, t.Reply.Src, local.Addr()}
		if used[p] == nil {
			used[p] = map[uint16]struct{}{}
		}

		used[p][local.Port()] = struct{}{}
	}

	var out []PortUse
	for p, usedPorts := range used {
		out = append(out, PortUse{Proto: p.proto, Remote: p.remote, Ports: len(usedPorts)})
	}

	slices.SortFunc(out, func(a, b PortUse) int {
		return cmp.Or(-cmp.Compare(a.Ports, b.Ports), cmp.Compare(a.Proto, b.Proto),
			a.Remote.Compare(b.Remote))
	})

	return out
}
