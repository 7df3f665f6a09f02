package openflow_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

const unreadable = "OVS reads no IP header"

func isIP(f *verdict.Frame) bool { return f.Type == corpus.EtherIPv4 || f.Type == corpus.EtherIPv6 }

// seen returns a frame as OVS parses it. name is the difference from the model's parser, or "".
func seen(n *corpus.Node, frame []byte, trace ovs.Trace) (f verdict.Frame, name string) {
	b := slices.Clone(frame)
	if proto, tci, _ := corpus.Untag(b); proto == corpus.EtherQinQ && n.Config.VLAN != 0 && tci&0xfff == n.Config.VLAN {
		binary.BigEndian.PutUint16(b[12:], corpus.EtherVLAN)

		name = "802.1ad tag is as 802.1Q"
	}

	at, version := len(b)-verdict.Parse(b).Length, byte(0x40)
	if f = verdict.Parse(b); f.Type == corpus.EtherIPv6 {
		version = 0x60
	}

	if isIP(&f) && f.Length > 0 && b[at]&0xf0 != version {
		b[at] = b[at]&0x0f | version
		f, name = verdict.Parse(b), "IP version is not looked at"
	}

	line, _, _ := strings.Cut(trace.Text, "\n")
	if f.Type == corpus.EtherIPv6 && !f.Whole && !strings.Contains(line, "nw_proto=0,") {
		if short := verdict.Parse(fewerHeaders(b, at)); short.Whole {
			f, name = short, "more than seven extension headers"
		}
	}

	noPorts := strings.Contains(line, "tp_src=0,tp_dst=0") && f.IP.SrcPort|f.IP.DstPort != 0
	switch {
	case isIP(&f) && strings.Contains(line, "nw_proto=0,"):
		f.Whole, f.IP = false, verdict.Packet{V6: f.IP.V6}
		name = unreadable
	case f.IP.Position == verdict.Unfragmented && noPorts:
		f.IP.SrcPort, f.IP.DstPort, f.IP.Flags = 0, 0, 0
		name = "transport header cut short"
	}

	return f, name
}

// fewerHeaders is an IPv6 packet, whose header is at at, without its first extension header.
func fewerHeaders(b []byte, at int) []byte {
	const header = 40
	if len(b) < at+header+8 {
		return b
	}

	ext := b[at+header:]
	length := min(8*(int(ext[1])+1), len(ext))
	short := slices.Concat(b[:at+header], ext[length:])
	short[at+6] = ext[0]

	return short
}

// modelledNode is a node with its model, which learns.
type modelledNode struct {
	node  *corpus.Node
	model verdict.Model
}

// exception is an intended difference between flows and model: the verdict that its packets get
// instead.
type exception struct {
	name string
	want verdict.Verdict
}

const reassembled = "fragment: reassembled in zone 64003"

// exceptionOf returns the difference between flows and model for a packet, or nil.
func (at modelledNode) exceptionOf(dir verdict.Direction, f *verdict.Frame, r verdict.Reason) *exception {
	n, m, p := at.node, at.model, &f.IP

	to := netip.AddrPortFrom(p.Dst, p.DstPort)
	switch {
	case dir != verdict.FromWire && p.Position != verdict.Unfragmented && unseen(m, dir, *f).Verdict() != r.Verdict():
		return &exception{"fragment: what is behind its IP header is not seen", unseen(m, dir, *f).Verdict()}
	case r == verdict.OutPlain && at.fromListener(f):
		return &exception{"from a port of a listening socket in the range", verdict.Drop}
	case r == verdict.ClusterDestination && p.Position == verdict.Later && !at.inner(p.Dst) && !n.Config.Connected:
		return &exception{"fragment of a dropped datagram", verdict.Host}
	case dir != verdict.FromWire || !n.Config.Connected:
		return nil
	case r == verdict.ClusterDestination && p.Position == verdict.Later && !at.inner(p.Dst):
		return &exception{reassembled, verdict.Both}
	case !isBefore(r, verdict.ClusterDestination) && p.Position != verdict.Unfragmented && at.inner(p.Dst) && looksAtPorts(n, p.Dst) &&
		f.Dst == n.Config.NodeMAC && r != verdict.VLAN && (f.Tagged && !f.Priority) == (n.Config.VLAN != 0):
		return &exception{reassembled, verdict.Drop} // which is what one gets there that is not reassembled
	case r.Verdict() != verdict.Host && r.Verdict() != verdict.OVN && r != verdict.FragmentEarly && r != verdict.ICMPErrorEcho && r != verdict.ICMPEchoReplyNS:
		return nil
	case beforeAddress(r), f.Dst != n.Config.NodeMAC:
		return nil
	case p.Position != verdict.Unfragmented && looksAtPorts(n, p.Dst):
		return &exception{reassembled, verdict.Both} // which is what a fragment gets that is not reassembled
	case p.Position != verdict.Unfragmented:
		return &exception{"fragment to an unknown address", verdict.Host}
	case r == verdict.ICMPErrorOVN, r == verdict.ICMPErrorEcho, r == verdict.ICMPErrorHost, r == verdict.ICMPVIP:
		return &exception{"ICMP error", verdict.Both}
	case r == verdict.ICMPEchoReplyNS, r == verdict.ICMPEchoReply && (p.Dst == n.Config.Node4 || p.Dst == n.Config.Node6):
		return &exception{"ICMP echo reply", verdict.Both}
	case r == verdict.SNATPort && p.Proto == corpus.ProtoTCP && slices.Contains(n.Sockets, verdict.Socket{Proto: p.Proto, Local: to}):
		return &exception{"listening socket in the range", verdict.Host}
	}

	return nil
}

// unseen returns the decision of flows on a fragment. Of a fragment from OVN or the host, OVS sees only
// the IP header, and of a later IPv6 fragment not even the protocol. From a fragment from the wire,
// flows learn nothing: OVS reassembles it, or sends it to both sides.
func unseen(m verdict.Model, dir verdict.Direction, f verdict.Frame) verdict.Decision {
	if dir == verdict.FromWire {
		return verdict.Decision{Reason: m.Decide(dir, f, now).Reason}
	}

	p := &f.IP

	p.SrcPort, p.DstPort, p.ICMPType, p.ICMPCode = 0, 0, 0, 0
	if p.V6 && p.Position == verdict.Later {
		p.Proto = corpus.ProtoTCP // which most are
	}

	return m.Decide(dir, f, now)
}

// beforeAddress reports whether a reason does not depend on what IP carries.
func beforeAddress(r verdict.Reason) bool {
	return !isBefore(verdict.OVNAddress, r) && r != verdict.Geneve
}

// isBefore reports whether a is evaluated before b.
func isBefore(a, b verdict.Reason) bool {
	place := func(r verdict.Reason) int {
		return slices.IndexFunc(verdict.Rules(), func(rule verdict.Rule) bool { return rule.Reason == r })
	}

	return place(a) < place(b)
}

// fromListener reports whether OVN sends f from the port of a listening host socket that would
// receive the replies: those to a frontend go to its Service. Flows read neither the ports of a
// fragment nor headers behind another network's tag.
func (at modelledNode) fromListener(f *verdict.Frame) bool {
	n, p := at.node, &f.IP
	if n.Config.Local || p.Proto != corpus.ProtoTCP || p.Position != verdict.Unfragmented || p.Src != n.Config.Node4 && p.Src != n.Config.Node6 {
		return false
	}

	if p.V6 && p.Src.Is4() { // an IPv4-mapped address is not the node's
		return false
	}

	if f.Tagged && (f.VID != n.Config.VLAN || n.Config.VLAN == 0 || f.Type != corpus.EtherIPv4 && f.Type != corpus.EtherIPv6) {
		return false
	}

	if at.model.Tables.Services[verdict.ServiceKey{Addr: p.Src, Proto: p.Proto, Port: p.SrcPort}] != verdict.ServiceNone {
		return false
	}

	local := netip.AddrPortFrom(p.Src, p.SrcPort)

	return looksInRange(n, p.SrcPort) && slices.Contains(n.Sockets, verdict.Socket{Proto: p.Proto, Local: local})
}

func looksInRange(n *corpus.Node, port uint16) bool {
	return n.Config.SNATPorts.Contains(port)
}

// inner reports whether an address is internal and not the host's.
func (at modelledNode) inner(a netip.Addr) bool {
	length := func(prefixes []netip.Prefix) (n int) {
		for _, p := range prefixes {
			if p.Contains(a) {
				n = max(n, p.Bits())
			}
		}

		return n
	}
	c := &at.node.Config
	host := a == c.Node4 || a == c.Node6 || at.node.Addrs[a] == verdict.AddrHost

	return length(c.Internal) > length(c.External) && !host
}

func looksAtPorts(n *corpus.Node, a netip.Addr) bool {
	if a == n.Config.Node4 || a == n.Config.Node6 || n.Addrs[a] == verdict.AddrHost || n.Addrs[a] == verdict.AddrVIP {
		return true
	}

	for k := range n.Services {
		if k.Addr == a {
			return true
		}
	}

	return false
}
