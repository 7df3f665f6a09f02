package plan

import (
	"fmt"
	"net/netip"
	"slices"

	services "github.com/ovn-ebpf/ovn-ebpf/service"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// tunnelRows returns ACLs that drop Geneve packets from pods to destinations outside of the pod
// networks. The gateway router would translate the source of such a packet to the node's address,
// which the other nodes accept as a tunnel endpoint. They would take the inner packet for a packet
// of OVN, so a pod could send any packet into the cluster's network.
//
// There are two ACLs:
//   - The first one matches destinations outside of the pod networks and of PodTunnels.
//   - The second one matches hosts within these networks: the management port of this node, and the
//     hosts in PodTunnels. A remote node's management port is matched at the switch of that node.
//
// As in masqueradeACL, every packet of a pod passes the node's switch, and the ACLs are evaluated
// after load balancing. A packet to a Service already has the address of an endpoint here.
// Therefore Service networks need not be allowed.
//
// An ACL without connection state does not drop replies. A host that sends a pod a packet from port
// 6081 gets the pod's reply. Therefore the gateway also drops Geneve packets of pods, regardless of
// state.
//
// The address sets of both ACLs have the same owner (tunnelSets). So they change together when
// PodTunnels changes, while the ACLs of all nodes stay the same.
func (n node) tunnelRows(cfg Config) []Row {
	// By family (is4): the match of the first ACL, and the addresses and sets of the second one.
	outsideMatch, hosts := map[bool]string{}, map[bool][]string{}

	for _, s := range n.subnets {
		a := ManagementAddress(s).Addr()
		hosts[a.Is4()] = append(hosts[a.Is4()], a.String())
	}

	for _, is4 := range []bool{true, false} {
		if _, whole := cfg.outside(is4); whole {
			outsideMatch[is4] = familyWord(is4) // no set exists then, see tunnelSets
			continue
		}

		outsideMatch[is4] = familyWord(is4) + ".dst == $" + outsideSetName(is4)
		hosts[is4] = append(hosts[is4], "$"+tunnelHostSetName(is4))
	}

	out := egress()
	acl := func(name, v4, v6 string) Row {
		return ACL{
			Switch:    nodeSwitch(n.name),
			Rule:      name,
			Label:     aclLabel(name, n.name),
			Direction: out.aclDirection,
			Priority:  masqueradePriority,
			Match:     conjunction(tunnelPackets(), disjunction(v4, v6)),
			Action:    "drop",
			Options:   out.aclOptions,
		}
	}

	return []Row{
		acl("tunnel", outsideMatch[true], outsideMatch[false]),
		acl("tunnel-hosts", out.setMatch("ip4", hosts[true]), out.setMatch("ip6", hosts[false])),
	}
}

// tunnelPackets returns a match of Geneve packets.
func tunnelPackets() string { return fmt.Sprintf("udp.dst == %d", services.TunnelPort) }

// outside returns the family's addresses outside of the pod networks and of PodTunnels, as the
// fewest prefixes. If these are all addresses, it returns whole and no prefixes.
//
// One network of n bits leaves n prefixes, each of which is a flow. For one network, OVN would make
// as many flows of a comparison with "!=". For two networks, it would make the product.
func (cfg Config) outside(is4 bool) (prefixes []netip.Prefix, whole bool) {
	allowed := slices.Concat(ofFamily(cfg.ClusterCIDRs, is4), ofFamily(cfg.PodTunnels, is4))
	if len(allowed) == 0 {
		return nil, true
	}

	limit := 0 // never exceeded: each network splits off one prefix for each of its bits
	for _, p := range allowed {
		limit += p.Bits()
	}

	prefixes, _ = subtract(wholeFamily(is4), allowed, limit)

	return prefixes, false
}

// tunnelSets returns the address sets of tunnelRows, which the nodes share. A family without pod
// networks and PodTunnels has none.
func tunnelSets(c *Cluster) []Row {
	var rows []Row

	for _, is4 := range []bool{true, false} {
		prefixes, whole := c.Config.outside(is4)
		if whole {
			continue
		}

		rows = append(rows,
			AddressSet{Name: outsideSetName(is4), Addresses: prefixStrings(prefixes)},
			AddressSet{Name: tunnelHostSetName(is4), Addresses: c.hostsIn(ofFamily(c.Config.PodTunnels, is4))})
	}

	return rows
}

// hostsIn returns the addresses of hosts, of all nodes, that are in the networks, sorted.
func (c *Cluster) hostsIn(networks []netip.Prefix) []string {
	var found []netip.Addr

	for a := range c.serviceNodes().hosts {
		if cluster.Contains(networks, a) {
			found = append(found, a)
		}
	}

	slices.SortFunc(found, netip.Addr.Compare)

	return addrStrings(found)
}

// outsideSetName returns the name of the family's address set with the networks of Config.outside.
func outsideSetName(is4 bool) string {
	if is4 {
		return "ovnebpf_outside_v4"
	}

	return "ovnebpf_outside_v6"
}

// tunnelHostSetName returns the name of the family's address set with the hosts in PodTunnels.
func tunnelHostSetName(is4 bool) string {
	if is4 {
		return "ovnebpf_tunnels_v4"
	}

	return "ovnebpf_tunnels_v6"
}
