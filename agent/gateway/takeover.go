package gateway

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Of openflow.PredecessorZone: the first generation's helper commits the pods'
// connections alone, today's ovn-kubernetes marks the host's with 2.
const (
	hostMark = 2
	ourZones = openflow.PredecessorZone + 1 // and above: the hairpin's and the fragments'
)

// takenOver returns which connections on the node's addresses are OVN's though
// their local port is outside the SNAT range: made under another gateway, or
// another range. Sorted.
func takenOver(tracked []ovs.Tracked, node []netip.Addr, ports bpf.PortRange) []bpf.FlowKey {
	var out []bpf.FlowKey
	for _, t := range tracked {
		if t.Zone == 0 || t.Zone >= ourZones {
			continue // the host's own tracking, and ours
		}
		k := bpf.FlowKey{Proto: t.Proto, Remote: t.Reply.Src, Local: t.Reply.Dst}
		if t.Zone == openflow.PredecessorZone {
			if t.Mark == hostMark {
				continue
			}
		} else if t.Original.Src == t.Reply.Dst {
			continue // not translated: a connection that only passes
		}
		if inside := ports.First <= k.Local.Port() && k.Local.Port() <= ports.Last; inside || k.Local.Port() == 0 || !slices.Contains(node, k.Local.Addr()) {
			continue
		}
		out = append(out, k)
	}
	slices.SortFunc(out, compareFlows)
	return slices.Compact(out)
}

// notHosts returns the connections that no socket of the host owns: a pod's of before may
// have the same addresses and ports, and the host's exchange goes first. A listener
// of TCP owns none of them.
func notHosts(flows []bpf.FlowKey, sockets []link.Socket) []bpf.FlowKey {
	byPort := map[uint16][]link.Socket{}
	for _, s := range sockets {
		byPort[s.Local.Port()] = append(byPort[s.Local.Port()], s)
	}
	return slices.DeleteFunc(flows, func(k bpf.FlowKey) bool {
		return slices.ContainsFunc(byPort[k.Local.Port()], func(s link.Socket) bool { return owns(s, k) })
	})
}

func owns(s link.Socket, k bpf.FlowKey) bool {
	a := s.Local.Addr()
	local := a == k.Local.Addr() || a.IsUnspecified() && (a.Is6() || k.Local.Addr().Is4())
	remote := s.Remote == k.Remote || !s.Remote.IsValid() && s.Proto == unix.IPPROTO_UDP
	return s.Proto == k.Proto && local && remote
}

func compareFlows(a, b bpf.FlowKey) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
}

// isIn reports whether a sorted list, which may be a busy node's, has the connection.
func isIn(list []bpf.FlowKey, k bpf.FlowKey) bool {
	_, is := slices.BinarySearchFunc(list, k, compareFlows)
	return is
}

// Use is how many of the SNAT range's ports connections to one remote take up.
type Use struct {
	Proto  uint8
	Remote netip.AddrPort
	Ports  int
}

// portUse returns how full the range is towards each remote, the fullest first.
// A port is free again for any other remote.
func portUse(tracked []ovs.Tracked, node []netip.Addr, ports bpf.PortRange) []Use {
	type remote struct {
		proto uint8
		at    netip.AddrPort
		from  netip.Addr
	}
	used := map[remote]map[uint16]struct{}{}
	for _, t := range tracked {
		local := t.Reply.Dst
		if t.Zone == 0 || t.Zone >= openflow.PredecessorZone || t.Original.Src == local || !slices.Contains(node, local.Addr()) ||
			local.Port() < ports.First || local.Port() > ports.Last {
			continue
		}
		r := remote{t.Proto, t.Reply.Src, local.Addr()}
		if used[r] == nil {
			used[r] = map[uint16]struct{}{}
		}
		used[r][local.Port()] = struct{}{}
	}
	var out []Use
	for r, ports := range used {
		out = append(out, Use{Proto: r.proto, Remote: r.at, Ports: len(ports)})
	}
	slices.SortFunc(out, func(a, b Use) int {
		return cmp.Or(-cmp.Compare(a.Ports, b.Ports), cmp.Compare(a.Proto, b.Proto), a.Remote.Compare(b.Remote))
	})
	return out
}
