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

// Values of openflow.PredecessorZone. The helper of the first generation commits only the pods'
// connections. Current ovn-kubernetes marks the host's connections with 2.
const (
	hostMark = 2
	ourZones = openflow.PredecessorZone + 1 // and above: zones of the hairpin and of fragments
)

// takenOver returns OVN's connections on the node's addresses with a local port outside the SNAT
// range. They began under another gateway or another range. Sorted.
func takenOver(tracked []ovs.TrackedConnection, node []netip.Addr, ports cluster.PortRange) []verdict.FlowKey {
	var out []verdict.FlowKey

	for _, t := range tracked {
		if t.Zone == 0 || t.Zone >= ourZones {
			continue // tracked by the host or by the agent
		}

		k := verdict.FlowKey{Proto: t.Proto, Remote: t.Reply.Src, Local: t.Reply.Dst}
		if t.Zone == openflow.PredecessorZone {
			if t.Mark == hostMark {
				continue
			}
		} else if t.Original.Src == t.Reply.Dst {
			continue // not translated: the connection only passes through
		}

		if ports.Contains(k.Local.Port()) || k.Local.Port() == 0 || !slices.Contains(node, k.Local.Addr()) {
			continue
		}

		out = append(out, k)
	}

	slices.SortFunc(out, compareFlows)

	return slices.Compact(out)
}

// withoutHostFlows returns the connections that no host socket owns. A former pod connection may
// have the same addresses and ports as one of the host, and the host takes precedence. TCP listeners
// own no connection.
func withoutHostFlows(flows []verdict.FlowKey, sockets []link.Socket) []verdict.FlowKey {
	byPort := map[uint16][]link.Socket{}
	for _, s := range sockets {
		byPort[s.Local.Port()] = append(byPort[s.Local.Port()], s)
	}

	return slices.DeleteFunc(flows, func(k verdict.FlowKey) bool {
		return slices.ContainsFunc(byPort[k.Local.Port()], func(s link.Socket) bool { return owns(s, k) })
	})
}

func owns(s link.Socket, k verdict.FlowKey) bool {
	a := s.Local.Addr()
	local := a == k.Local.Addr() || a.IsUnspecified() && (a.Is6() || k.Local.Addr().Is4())
	remote := s.Remote == k.Remote || !s.Remote.IsValid() && s.Proto == unix.IPPROTO_UDP

	return s.Proto == k.Proto && local && remote
}

func compareFlows(a, b verdict.FlowKey) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
}

// containsFlow reports whether a sorted list contains the connection. On a busy node the list is long.
func containsFlow(list []verdict.FlowKey, k verdict.FlowKey) bool {
	_, is := slices.BinarySearchFunc(list, k, compareFlows)
	return is
}

// PortUse is the number of ports of the SNAT range that connections to one remote occupy.
type PortUse struct {
	Proto  uint8
	Remote netip.AddrPort
	Ports  int
}

// portUse returns the use of the range per remote, fullest first. A port in use for one remote is
// free for any other.
func portUse(tracked []ovs.TrackedConnection, node []netip.Addr, ports cluster.PortRange) []PortUse {
	type remote struct {
		proto uint8
		at    netip.AddrPort
		from  netip.Addr
	}

	used := map[remote]map[uint16]struct{}{}

	for _, t := range tracked {
		local := t.Reply.Dst
		if t.Zone == 0 || t.Zone >= openflow.PredecessorZone || t.Original.Src == local {
			continue
		}

		if !slices.Contains(node, local.Addr()) || !ports.Contains(local.Port()) {
			continue
		}

		r := remote{t.Proto, t.Reply.Src, local.Addr()}
		if used[r] == nil {
			used[r] = map[uint16]struct{}{}
		}

		used[r][local.Port()] = struct{}{}
	}

	var out []PortUse
	for r, ports := range used {
		out = append(out, PortUse{Proto: r.proto, Remote: r.at, Ports: len(ports)})
	}

	slices.SortFunc(out, func(a, b PortUse) int {
		return cmp.Or(-cmp.Compare(a.Ports, b.Ports), cmp.Compare(a.Proto, b.Proto),
			a.Remote.Compare(b.Remote))
	})

	return out
}
