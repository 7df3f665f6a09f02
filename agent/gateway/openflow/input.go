package openflow

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Ports are OpenFlow port numbers on the gateway bridge: of the uplink, and of the patch port to
// OVN. 0 means that the port is missing. The host's port is always LOCAL.
type Ports struct{ Uplink, Patch uint32 }

// Input contains everything that the flows depend on. Planner and Flows do not modify it.
type Input struct {
	Ports  Ports
	Config *verdict.Config
	// Tables must have Addrs, Services, Flows and HostProtos. Learned flows and Sockets replace the
	// other tables.
	Tables *verdict.Tables
	// Sockets are the host's sockets on ports of the SNAT range, and connected ones at frontends. A
	// socket without remote address listens or is not connected. An unspecified local address means
	// any address of that version, or of both for ::.
	Sockets []verdict.Socket
	Hairpin Hairpin
}

// Flows returns the demultiplexer for layout bridged, sorted, in the syntax of ovs.SyncBundle.
// Without a patch port, or with a Config that is not connected, OVN gets no packet from the wire:
// the host gets all that are not dropped as internal. Without an uplink, no packet leaves.
//
// Learned flows have their own table and cookie (ovs.LearnedCookie). They are removed with the flow
// that learned them.
func Flows(in Input) []string {
	var p Planner
	p.Flows(in)

	return p.All()
}

// builder builds the flows of one Input.
type builder struct {
	flows
	in Input
	c  *verdict.Config // that of in

	// Actions for a packet as received from the wire.
	toOVN, toHost, both []string
	// Actions for a packet from OVN. Those of up replace the destination MAC, which is the next hop's.
	up  []string // to the host
	out []string // to the wire

	kinds map[netip.Addr]verdict.AddrKind // of every known address, see kindsOfAddrs
}

// demultiplexer adds everything except the flows of single frontends. Each method adds the flows of
// one table, or of a few. The tables are in the order in which packets pass them: from the wire,
// from OVN, from the host.
func (b *builder) demultiplexer() {
	b.ports()
	b.internal()

	if b.isConnected() {
		b.l2()
		b.addresses()
		b.ours()
		b.snatRange()
		b.rest()
		b.protocols()
	}

	if b.in.Ports.Patch != 0 {
		b.compareARP()
		b.ovn()
		b.guard()
		b.leaving()
	}

	b.host()
	b.hairpin()

	if b.c.VLAN != 0 { // OpenFlow removes only tags that are matched
		b.add(tableToHost, 10, match{}.with("vlan_tci", tagged), "pop_vlan", local)
		b.add(tableToHost, 0, nil, local)
	}
}

func newBuilder(in Input) *builder {
	b := &builder{in: in, c: in.Config}
	b.toOVN = []string{output(in.Ports.Patch)}

	b.toHost = []string{"LOCAL"}
	if b.c.VLAN != 0 { // OVN tags its frames, as its localnet port has a tag
		b.toHost = []string{resubmit(tableToHost)}
	}

	b.up = append([]string{"set_field:" + b.c.NodeMAC.String() + "->eth_dst"}, b.toHost...)
	b.both = slices.Concat(b.toOVN, b.toHost)

	b.out = []string{"drop"}
	if b.isConnected() {
		b.out = []string{output(in.Ports.Uplink)}
	}

	b.kinds = b.kindsOfAddrs()

	return b
}

// isConnected reports whether packets can pass between the wire and OVN. If not, OVN gets none
// from the wire.
func (b *builder) isConnected() bool {
	return b.c.Connected && b.in.Ports.Patch != 0 && b.in.Ports.Uplink != 0
}

// nodes returns the node's addresses, IPv4 first.
func (b *builder) nodes() []netip.Addr {
	return valid(b.c.Node4, b.c.Node6)
}

func valid(addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() })
}

func (b *builder) isNode(a netip.Addr) bool { return slices.Contains(b.nodes(), a) }

// kindsOfAddrs returns every known address with its kind, as the model does.
func (b *builder) kindsOfAddrs() map[netip.Addr]verdict.AddrKind {
	kinds := map[netip.Addr]verdict.AddrKind{b.c.NodeMAC.LinkLocal(): verdict.AddrOVN}
	maps.Copy(kinds, b.in.Tables.Addrs)

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
