package openflow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// This file has the vocabulary of the others: tables, matches, and lists of flows. A flow is a line
// of text in the syntax of ovs.FlowSync. FlowSync compares it with the flows that OVS prints, so it
// must be spelled exactly as OVS spells it.

// table is the number of an OpenFlow table. Packets begin in table 0, tablePort. The other numbers
// have no order. tableNames has names for users.
type table uint8

const (
	tablePort     table = iota // by port and MAC
	tableL2                    // from the wire: ARP, neighbour discovery, multicast
	tableAddress               // from the wire: by destination
	tableOurs                  // to the host or a VIP: Services, the SNAT range
	tableRange                 // to the SNAT range
	tableGated                 // to a port of the range that a host socket uses
	tableTakeover              // connections from before a takeover
	tableRest                  // packets without a decision by port
	tableProto                 // protocols without ports
	tableLearned               // learned flows only; they set reg1
	tableAnswer                // by reg1: protocols without ports
	tableICMP6                 // ICMPv6, with its type in reg0
	tableSame                  // ARP: compares sender and target; reg0 is the step
	tableSameEnd               // ARP: sender and target are equal
	tableOVN                   // from OVN
	tableTagged                // from OVN, with a tag other than the gateway network's
	tableTooBig                // from OVN: ICMP "too big"
	tableGuard                 // from OVN, with the right MAC
	tableLocal                 // from OVN, in local gateway mode: checks the length
	tableSize                  // by reg0: too large
	tableOut                   // from OVN: learn and leave
	tableHost                  // from the host
	tableService               // from the host, to OVN
	tableToHost                // with a gateway VLAN: removes the tag
	tableHairpin               // from the host, translated
	tableClaim                 // from the wire: neighbour advertisements of internal addresses
	tableSender                // from the wire: by source
	tableInward                // from the wire: to internal addresses
)

const (
	arpRequest = 1
	arpReply   = 2

	icmp4Reply         = 0
	icmp4Unreachable   = 3
	icmp4FragNeeded    = 4 // code of icmp4Unreachable
	icmp4Echo          = 8
	icmp6TooBig        = 2
	icmp6Echo          = 128
	icmp6Reply         = 129
	icmp6RouterSolicit = 133
	icmp6RouterAdvert  = 134
	icmp6Solicit       = 135
	icmp6Advert        = 136
	icmp6Redirect      = 137

	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132

	bfdPort = 3784
)

var (
	// icmp4Errors are unreachable, source quench, redirect, time exceeded and parameter problem.
	icmp4Errors = [...]int{icmp4Unreachable, 4, 5, 11, 12}
	// icmp6Neighbour are the types of neighbour discovery.
	icmp6Neighbour = [...]int{icmp6RouterSolicit, icmp6RouterAdvert, icmp6Solicit, icmp6Advert, icmp6Redirect}
)

// match is a list of match fields in any order. nil matches every packet.
type match []field

// field is a match field of ovs-fields(7), or a protocol keyword such as "tcp6", without a value.
type field struct{ name, value string }

// order is the order in which OVS prints fields. "" stands for the protocol keyword.
var order = [...]string{
	"ct_state",
	"pkt_mark",
	"",
	"reg0",
	"reg1",
	"in_port",
	"vlan_tci",
	"dl_vlan",
	"dl_src",
	"dl_dst",
	"dl_type",
	"nw_src",
	"ipv6_src",
	"arp_spa",
	"nw_dst",
	"ipv6_dst",
	"arp_tpa",
	"nw_proto",
	"arp_op",
	"nw_frag",
	"tp_src",
	"tp_dst",
	"icmp_type",
	"icmp_code",
	"nd_target",
	"nd_reserved",
	"tcp_flags",
}

// rank returns the place of f in order.
func (f field) rank() int {
	if f.value == "" {
		return slices.Index(order[:], "")
	}

	return slices.Index(order[:], f.name)
}

// on returns a match for a protocol keyword, or for every packet if word is "".
func on(word string) match {
	if word == "" {
		return nil
	}

	return match{{name: word}}
}

// with returns a copy of m with one more field.
func (m match) with(name string, value any) match {
	return append(slices.Clip(m), field{name, fmt.Sprint(value)})
}

func (m match) fromLocal() match { return m.with("in_port", local) }

func (m match) from(a netip.Addr) match { return m.with(addressField(a, "src"), a) }
func (m match) to(a netip.Addr) match   { return m.with(addressField(a, "dst"), a) }

func (m match) fromNet(p netip.Prefix) match { return m.with(addressField(p.Addr(), "src"), p) }
func (m match) toNet(p netip.Prefix) match   { return m.with(addressField(p.Addr(), "dst"), network(p)) }

// network formats a prefix as OVS does: a single address has no prefix length.
func network(p netip.Prefix) any {
	if p.IsSingleIP() {
		return p.Addr()
	}

	return p.Masked()
}

func addressField(a netip.Addr, side string) string {
	if a.Is4() {
		return "nw_" + side
	}

	return "ipv6_" + side
}

// ip returns the keyword for IP of a's version: ip or ipv6.
func ip(a netip.Addr) match {
	if a.Is4() {
		return on("ip")
	}

	return on("ipv6")
}

// proto returns the match for a transport protocol or ICMP over IP of a's version. word is the
// keyword for IPv4.
func proto(word string, a netip.Addr) match {
	if !a.Is4() {
		word += "6"
	}

	return on(word)
}

// words are the IPv4 keywords of the protocols with ports. Other protocols are absent.
var words = map[uint8]string{protoTCP: "tcp", protoUDP: "udp", protoSCTP: "sctp"}

func (m match) String() string {
	m = slices.Clone(m)
	slices.SortStableFunc(m, func(a, b field) int { return a.rank() - b.rank() })

	parts := make([]string, len(m))
	for i, f := range m {
		parts[i] = f.name
		if f.value != "" {
			parts[i] += "=" + f.value
		}
	}

	return strings.Join(parts, ",")
}

// flows is a list of flows, in any order.
type flows []string

// add appends a flow that does not count: it passes packets to another table, or it executes an
// earlier decision.
func (f *flows) add(t table, priority int, m match, actions ...string) {
	f.count(0, t, priority, m, actions...)
}

// count appends a flow that counts its packets under number (see Count). 0 means no counting.
func (f *flows) count(number uint8, t table, priority int, m match, actions ...string) {
	var b strings.Builder
	if t != 0 {
		fmt.Fprintf(&b, "table=%d,", t)
	}

	fmt.Fprintf(&b, "priority=%d", priority)

	if len(m) > 0 {
		b.WriteString("," + m.String())
	}

	*f = append(*f, b.String()+" actions="+strings.Join(actions, ",")+suffix(number))
}

// sorted returns the flows without repetitions. It reorders f.
func (f flows) sorted() []string {
	slices.Sort(f)
	return slices.Compact(f)
}

func output(port uint32) string { return fmt.Sprintf("output:%d", port) }

func resubmit(t table) string { return fmt.Sprintf("resubmit(,%d)", t) }

// portMatch is one masked match of a transport port.
type portMatch struct{ value, mask uint16 }

func (p portMatch) String() string {
	if p.mask == 0xffff {
		return fmt.Sprint(p.value)
	}

	return fmt.Sprintf("%#x/%#x", p.value, p.mask)
}

// portMatches returns the smallest set of masked matches that cover first to last, inclusive. Each
// is the largest aligned block that starts where the previous one ended.
func portMatches(first, last uint16) []portMatch {
	var out []portMatch

	for at := uint32(first); at <= uint32(last); {
		size := uint32(1)
		for at%(2*size) == 0 && at+2*size-1 <= uint32(last) && size < 1<<15 {
			size *= 2
		}

		out = append(out, portMatch{uint16(at), uint16(1<<16 - size)})
		at += size
	}

	return out
}
