package openflow

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
)

// Ports are port numbers on the gateway bridge; 0: there is none. The host's is
// always LOCAL.
type Ports struct{ Uplink, Patch uint32 }

// Socket is a socket of the host on a port of the SNAT range. One without a
// remote address listens, or is not connected. Local may be unspecified: any
// address of that version, and of both if it is ::.
type Socket struct {
	Proto         uint8 // TCP or UDP
	Local, Remote netip.AddrPort
}

// Input is all that the flows depend on.
type Input struct {
	Ports  Ports
	Config *verdict.Config
	// Tables: Addrs, Services, Flows and HostProtos are read. The rest is learned
	// by flows, or is Sockets.
	Tables  *verdict.Tables
	Sockets []Socket
	Hairpin Hairpin
}

// Flows returns the demultiplexer for the layout bridged, sorted, in the
// spelling that ovs.SyncBundle wants. With no patch port, or with a Config that
// is not connected, everything is the host's; with no uplink, nothing goes out.
//
// What it learns stands in a table of its own under a cookie of its own
// (ovs.LearnedCookie) and goes with the flow that learned it.
func Flows(in Input) []string {
	var p Planner
	p.Flows(in)
	return p.All()
}

// demultiplexer adds everything but the flows of single front ends.
func (b *builder) demultiplexer() {
	b.ports()
	b.internal()
	if b.connected() {
		b.l2()
		b.addresses()
		b.ours()
		b.snatRange()
		b.rest()
	}
	if b.in.Ports.Patch != 0 {
		b.same()
		b.ovn()
		b.guard()
		b.leave()
	}
	b.host()
	b.hairpin()
	if b.c.VLAN != 0 { // OpenFlow takes off only tags that are matched
		b.add(tableToHost, 10, match{}.with("vlan_tci", tagged), "pop_vlan", local)
		b.add(tableToHost, 0, nil, local)
	}
}

// builder is Flows at work.
type builder struct {
	flows
	in     Input
	c      *verdict.Config
	toOVN  []string // actions, of a packet as it came from the wire
	toHost []string
	both   []string
	up     []string // to the host, of one of OVN's: its MAC is the next hop's
	out    []string // of one of OVN's
	kinds  map[netip.Addr]verdict.AddrKind
}

func newBuilder(in Input) *builder {
	b := &builder{in: in, c: in.Config}
	b.toOVN = []string{output(in.Ports.Patch)}
	b.toHost = []string{"LOCAL"}
	if b.c.VLAN != 0 { // OVN's frames are tagged, as its localnet port is
		b.toHost = []string{resubmit(tableToHost)}
	}
	b.up = append([]string{"set_field:" + macString(b.c.NodeMAC) + "->eth_dst"}, b.toHost...)
	b.both = slices.Concat(b.toOVN, b.toHost)
	b.out = []string{"drop"}
	if b.connected() {
		b.out = []string{output(in.Ports.Uplink)}
	}
	b.kinds = b.addrs()
	return b
}

func (b *builder) connected() bool {
	return b.c.Connected && b.in.Ports.Patch != 0 && b.in.Ports.Uplink != 0
}

// nodes returns the node's addresses, IPv4 first.
func (b *builder) nodes() []netip.Addr {
	return valid(b.c.Node4, b.c.Node6)
}

func valid(addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() })
}

func (b *builder) node(a netip.Addr) bool { return slices.Contains(b.nodes(), a) }

// addrs returns every address somebody here is known to have, with its kind, as
// the model does.
func (b *builder) addrs() map[netip.Addr]verdict.AddrKind {
	kinds := map[netip.Addr]verdict.AddrKind{routerLinkLocal(b.c.NodeMAC): verdict.AddrOVN}
	for a, k := range b.in.Tables.Addrs {
		kinds[a] = k
	}
	for _, a := range b.nodes() {
		kinds[a] = verdict.AddrHost
	}
	return kinds
}

// hosts returns the host's addresses.
func (b *builder) hosts() []netip.Addr {
	var out []netip.Addr
	for a, k := range b.kinds {
		if k == verdict.AddrHost {
			out = append(out, a)
		}
	}
	return out
}

// routerLinkLocal is the address OVN gives the router's port (RFC 4291, modified EUI-64).
func routerLinkLocal(m verdict.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
