package plan

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// tunnelPackets matches Geneve packets, by which the nodes send each other the packets of pods.
const tunnelPackets = "udp.dst == 6081"

// tunnelRows returns ACLs that drop Geneve packets from pods to destinations outside of the pod
// networks. The gateway router would translate the source of such a packet to the node's address,
// which is a tunnel endpoint of the other nodes. They would take the inner packet for one of OVN's.
//
// As in masqueradeACL, every packet of a pod passes the node's switch, and the ACLs are evaluated
// after load balancing. Therefore a Service network is outside, too: a packet to a Service has the
// address of an endpoint here, which is a pod or not.
//
// An ACL without connection state does not drop replies. A host that sends a pod a packet from port
// 6081 gets the pod's reply. The gateway therefore drops Geneve packets of pods regardless of state.
//
// The first ACL matches everything outside of the pod networks and of PodTunnels. The second one
// matches hosts within these: the management port of this node, which is in a pod network, and the
// hosts in PodTunnels. A remote node's management port is matched at the switch of that node.
func (n node) tunnelRows(cfg Config) []Row {
	out := rule{direction: egress()}
	acl := func(name, v4, v6 string) []Row {
		to := disjunction(v4, v6)
		if to == "" {
			return nil
		}
		return []Row{ACL{
			Switch: nodeSwitch(n.name), Rule: name, Label: aclLabel(name, n.name), Direction: out.lport, Priority: masqueradePriority,
			Match: conjunction(tunnelPackets, to), Action: "drop", Options: out.options,
		}}
	}

	hosts := map[bool][]string{}
	for _, s := range n.subnets {
		a := ManagementAddress(s).Addr()
		hosts[a.Is4()] = append(hosts[a.Is4()], a.String())
	}
	for _, is4 := range []bool{true, false} {
		if len(networksOf(cfg.PodTunnels, is4)) > 0 {
			hosts[is4] = append(hosts[is4], "$"+tunnelHosts(is4))
		}
	}

	return append(
		acl("tunnel", outsideMatch(cfg, true), outsideMatch(cfg, false)),
		acl("tunnel-hosts", out.setMatch("ip4", hosts[true]), out.setMatch("ip6", hosts[false]))...)
}

// outsideMatch matches the family's destinations to which pods may not send Geneve packets, or is
// "" if there are none. A family without pod networks is matched as a whole.
func outsideMatch(cfg Config, is4 bool) string {
	family := map[bool]string{true: "ip4", false: "ip6"}[is4]
	prefixes, whole := cfg.outside(is4)
	switch {
	case whole:
		return family
	case len(prefixes) == 0:
		return ""
	}
	return family + ".dst == $" + outsideNetworks(is4)
}

// outside returns the family's addresses outside of the pod networks and of PodTunnels, as the
// fewest prefixes. It returns whole, and no prefixes, if these are all addresses.
//
// One network of n bits leaves n prefixes, and each is a flow. OVN would make as many flows of a
// comparison with "!=", but of two networks it would make the product.
func (cfg Config) outside(is4 bool) (prefixes []netip.Prefix, whole bool) {
	allowed := slices.Concat(networksOf(cfg.ClusterCIDRs, is4), networksOf(cfg.PodTunnels, is4))
	if len(allowed) == 0 {
		return nil, true
	}

	all, most := netip.PrefixFrom(netip.IPv6Unspecified(), 0), 0
	if is4 {
		all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	for _, p := range allowed {
		most += p.Bits()
	}
	prefixes, _ = subtract(all, allowed, most)
	return prefixes, false
}

// tunnelSets returns the address sets to which the ACLs of all nodes refer.
func tunnelSets(c *Cluster) []Row {
	var rows []Row
	for _, is4 := range []bool{true, false} {
		if prefixes, _ := c.Config.outside(is4); len(prefixes) > 0 {
			rows = append(rows, AddressSet{Name: outsideNetworks(is4), Addresses: prefixStrings(prefixes)})
		}
		if ranges := networksOf(c.Config.PodTunnels, is4); len(ranges) > 0 {
			rows = append(rows, AddressSet{Name: tunnelHosts(is4), Addresses: c.hostsIn(ranges)})
		}
	}
	return rows
}

// hostsIn returns the addresses of all nodes' hosts and tunnels in the networks, sorted.
func (c *Cluster) hostsIn(networks []netip.Prefix) []string {
	var all []netip.Addr
	add := func(a netip.Addr) {
		if contains(networks, a) {
			all = append(all, a)
		}
	}

	for node, parsed := range c.servers().parsed {
		for _, a := range parsed.hosts {
			add(a)
		}
		if a, err := netip.ParseAddr(node.Annotations[annotation.TunnelAddress]); err == nil {
			add(a.Unmap().WithZone(""))
		}
	}

	slices.SortFunc(all, netip.Addr.Compare)
	var out []string
	for _, a := range slices.Compact(all) {
		out = append(out, a.String())
	}
	return out
}

// outsideNetworks returns the name of the family's set of the networks of Config.outside.
func outsideNetworks(is4 bool) string {
	if is4 {
		return "ovnebpf_outside_v4"
	}
	return "ovnebpf_outside_v6"
}

// tunnelHosts returns the name of the family's set of hosts in PodTunnels. It exists only if
// PodTunnels has networks of the family.
func tunnelHosts(is4 bool) string {
	if is4 {
		return "ovnebpf_tunnels_v4"
	}
	return "ovnebpf_tunnels_v6"
}
