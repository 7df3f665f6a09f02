package main

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/busy"
)

// classOf converts a class to its form in the output.
func classOf(g busy.Group) classShown {
	c := classShown{From: "wire", Verdict: g.Class.Verdict, Rate: g.Rate, Flows: []flowShown{}}

	// Packets with the direction rx are from the wire. Of others, the port is the sender.
	switch {
	case g.Class.Direction == "rx":
	case g.Class.Port == "host":
		c.From = "host"
	default:
		c.From = "ovn"
	}

	for _, b := range g.Flows {
		f := flowShown{Protocol: protocolOf(b.Flow), Reason: b.Reason, Rate: b.Rate}
		f.Source, f.Destination = endpointText(b.Src), endpointText(b.Dst)
		c.Flows = append(c.Flows, f)
	}

	return c
}

// endpointText formats an address, with its port if it has one.
func endpointText(a netip.AddrPort) string {
	switch {
	case !a.Addr().IsValid():
		return "-"
	case a.Port() == 0:
		return a.Addr().String()
	}

	return a.String()
}

// protocolOf returns the IP protocol of a flow. For frames that are not IP, it returns the
// EtherType.
func protocolOf(f busy.Flow) string {
	switch {
	case f.Type == unix.ETH_P_ARP:
		return "arp"
	case !f.Src.IsValid():
		return fmt.Sprintf("%#04x", f.Type)
	case f.Proto == unix.IPPROTO_GRE:
		return "gre"
	case f.Proto == unix.IPPROTO_ESP:
		return "esp"
	}

	return protocolName(f.Proto)
}

// String formats the interval for a terminal.
func (p picture) String() string {
	var (
		b     strings.Builder
		total busy.Rate
	)
	for _, c := range p.Classes {
		total.Packets += c.Rate.Packets
		total.Bytes += c.Rate.Bytes
	}

	fmt.Fprintf(&b, "%s  %.1f s  %s packets/s  %s/s\n",
		p.Time.Format("15:04:05"), p.Seconds, short(total.Packets, ""), short(total.Bytes, "B"))

	verdictTexts := map[string]string{
		"host": "to the host",
		"ovn":  "to OVN",
		"both": "to both",
		"out":  "to the wire",
		"drop": "dropped",
	}

	for _, c := range p.Classes {
		fmt.Fprintf(&b, "\nfrom %s %s  %s packets/s  %s/s\n",
			c.From, verdictTexts[c.Verdict], short(c.Rate.Packets, ""), short(c.Rate.Bytes, "B"))

		for _, f := range c.Flows {
			fmt.Fprintf(&b, "  %9s/s %8s/s  %-5s %s > %s  %s\n", short(f.Rate.Bytes, "B"),
				short(f.Rate.Packets, ""), f.Protocol, f.Source, f.Destination, f.Reason)
		}
	}

	if len(p.Services) > 0 {
		b.WriteString("\nServices, at the uplink\n")
	}

	for _, s := range p.Services {
		fmt.Fprintf(&b, "  %9s/s %8s/s  %s\n", short(s.Rate.Bytes, "B"), short(s.Rate.Packets, ""), s.Service)
	}

	if p.Missed > 0 {
		fmt.Fprintf(&b, "\n%d packets are not in the sample: flows are estimated\n", p.Missed)
	}

	if p.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", p.Note)
	}

	return b.String()
}

// short formats a number with at most three digits, a prefix of the unit, and the unit: 1.5 kB,
// 23M.
func short(n float64, unit string) string {
	for _, prefix := range []string{"", "k", "M", "G"} {
		if n < 999.5 || prefix == "G" { // 999.5 is printed as 1000
			digits := 0
			if n < 9.95 && n > 0 { // 9.95 is printed as 10.0
				digits = 1
			}

			if unit != "" {
				unit = " " + prefix + unit
			} else {
				unit = prefix
			}

			return fmt.Sprintf("%.*f%s", digits, n, unit)
		}

		n /= 1000
	}

	return "" // not reached: the last prefix always returns
}
