package openflow

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Spell formats a frame as a flow of ofproto/trace: it has the fields that the bridge's flows
// match, as OVS would parse them from the frame. When OVS traces this text instead of the frame, no
// flow learns. For a malformed frame it contains the fields that OVS still reads, except from an
// invalid IP header.
func Spell(f verdict.Frame) string {
	var b strings.Builder

	put := func(name string, value any) { fmt.Fprintf(&b, ",%s=%v", name, value) }

	fmt.Fprintf(&b, "dl_src=%s,dl_dst=%s", f.Src.String(), f.Dst.String())

	if f.Tagged {
		put("vlan_tci", fmt.Sprintf("%#x", 0x1000|f.VID))
	}

	put("dl_type", fmt.Sprintf("%#04x", f.Type))

	switch {
	case f.Type == etherARP && f.Whole:
		put("arp_op", f.ARP.Op)
		put("arp_spa", f.ARP.Sender)
		put("arp_tpa", f.ARP.Target)
	case f.Type == etherIPv4 || f.Type == etherIPv6:
		spellIP(put, &f)
	}

	return b.String()
}

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	protoICMP     = 1
	protoFragment = 44 // IPv6's fragment header
	protoICMPv6   = 58
)

// spellIP puts the fields of IP, and of the transport header unless it is in another fragment.
func spellIP(put func(string, any), f *verdict.Frame) {
	p := &f.IP
	for _, end := range []struct {
		side string
		addr netip.Addr
	}{{"src", p.Src}, {"dst", p.Dst}} {
		if end.addr.IsValid() && p.V6 {
			put("ipv6_"+end.side, netip.AddrFrom16(end.addr.As16())) // including IPv4-mapped addresses
		} else if end.addr.IsValid() {
			put("nw_"+end.side, end.addr)
		}
	}

	if !f.Whole { // malformed
		return
	}

	if p.V6 && p.Position == verdict.Later {
		put("nw_proto", protoFragment) // OVS reads no further
	} else {
		put("nw_proto", p.Proto)
	}

	positions := [...]string{verdict.Unfragmented: "no", verdict.First: "first", verdict.Later: "later"}
	put("nw_frag", positions[p.Position])

	if p.Position == verdict.Later {
		return
	}

	switch word, hasPorts := words[p.Proto]; {
	case hasPorts:
		put(word+"_src", p.SrcPort)
		put(word+"_dst", p.DstPort)

		if p.Proto == protoTCP {
			put("tcp_flags", p.Flags)
		}
	case p.Proto == protoICMP && !p.V6:
		put("icmp_type", p.ICMPType)
		put("icmp_code", p.ICMPCode)
	case p.Proto == protoICMPv6 && p.V6:
		put("icmpv6_type", p.ICMPType)
		put("icmpv6_code", p.ICMPCode)

		if p.Target.IsValid() && p.ICMPCode == 0 {
			put("nd_target", p.Target)
		}

		if p.Target.IsValid() && p.ICMPType == icmp6Advert && p.ICMPCode == 0 && p.Solicited {
			put("nd_reserved", "0x40000000") // the flag solicited (RFC 4861, 4.4)
		}
	}
}
