package masquerade

import (
	"fmt"
	"net/netip"
	"strings"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// tunnels returns the chains that drop Geneve packets of pods. Otherwise the host would translate
// the source of such a packet to its own address, which is a tunnel endpoint of the other nodes.
//
// An ACL of the node's switch drops most of these packets (controller/plan/tunnel.go). But an ACL
// does not drop replies, and no eBPF program of the gateway sees a pod's packet before the host has
// translated it. Therefore these chains look at every packet that enters by the management port,
// whatever its connection and its source. The host's own tunnels do not use this port.
//
// A packet to one of the host's own addresses takes the hook input, where no destination is
// allowed.
func tunnels(c Config) string {
	var b strings.Builder

	// addChain adds a base chain, of the name of its hook.
	addChain := func(hook, verdict string) {
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook %[1]s priority filter; policy accept;\n", hook)
		fmt.Fprintf(&b, "\t\tiifname %q udp dport %d %s\n\t}\n", c.Port, model.TunnelPort, verdict)
	}

	addChain("input", "drop")

	b.WriteString("\tchain tunnels {\n")

	for _, family := range families {
		if s := set(singleAddresses(c.Hosts), family.is); s != "" {
			fmt.Fprintf(&b, "\t\t%s daddr { %s } drop\n", family.ip, s)
		}

		if s := set(c.Tunnels, family.is); s != "" {
			fmt.Fprintf(&b, "\t\t%s daddr { %s } return\n", family.ip, s)
		}
	}

	b.WriteString("\t\tdrop\n\t}\n")

	addChain("forward", "goto tunnels") // after the chain tunnels, which nft must know already

	return b.String()
}

// singleAddresses returns prefixes of one address each.
func singleAddresses(addresses []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(addresses))
	for _, a := range addresses {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}

	return out
}
