package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// ovnk is ovn-kubernetes' gateway of today: breth0 has the uplink, the node's addresses, and all
// flows of the default network in shared gateway mode, with egress IPs enabled and a pair of flows
// for each NodePort. The facts are those of ovn-kubernetes at commit 09a9359bebcc
// (go-controller/pkg/node/bridgeconfig/bridgeflows.go, and gateway_shared_intf.go of NodePorts).
type ovnk struct {
	ovs      ovs
	services int
}

func (v *ovnk) traits() traits {
	return v.ovs.limit(traits{
		name: bench.OVNK, layout: "bridged",
		tests: gatewayTests(),
		ipv6:  gatewayTests6(),
	})
}

// Cookies of the flows that count a packet. All other flows have none.
const (
	ovnkFromWire   = iota + 0x30 // to conntrack
	ovnkToOVN                    // of a pod's connection
	ovnkToHost                   // of the host's connection
	ovnkNewToHost                // of no known connection
	ovnkFromOVN                  // of a pod
	ovnkFromHost                 // of the host
	ovnkService                  // to a NodePort
	ovnkServiceOut               // its answers
	ovnkTunnelIn                 // Geneve
	ovnkTunnelOut
	ovnkLast
)

func (v *ovnk) setup(ctx context.Context) error {
	if err := v.ovs.bridgedHost(ctx, "", ""); err != nil {
		return err
	}

	_, patch, err := v.ovs.patchPort(ctx)
	if err != nil {
		return err
	}

	if err := v.ovs.flows(ctx, "breth0", ovnkFlows(patch, v.services)); err != nil {
		return err
	}

	return v.ovs.reached(ctx)
}

func (v *ovnk) podsIPv6(ctx context.Context) error { return v.ovs.podsIPv6(ctx) }

// ovnkFlows returns breth0's flows. patch is the number of the patch port. The functions below
// write them as templates: words in capitals, such as PATCH and NODE_, are placeholders. Those that
// end with "_" have a value for each IP family.
func ovnkFlows(patch string, services int) string {
	common := strings.NewReplacer(
		"PATCH", patch, "WIRE", fmt.Sprint(uplinkPort), "MAC", nodeMAC,
		"OVN_MARK", "exec(set_field:0x1->ct_mark)", "HOST_MARK", "exec(set_field:0x2->ct_mark)",
	)
	text := ovnkCommon() + ovnkIPv6ND

	for _, f := range []map[string]string{
		{
			"IP_":       "ip",
			"UDP_":      "udp",
			"SRC_":      "nw_src",
			"DST_":      "nw_dst",
			"NODE_":     nodeIP,
			"OTHER_":    nodeIP2,
			"SUBNET_":   "172.30.0.0/24",
			"PODS_":     "10.244.0.0/16",
			"SERVICES_": "10.96.0.0/16",
			"HOSTMASQ_": "169.254.169.2",
			"OVNMASQ_":  "169.254.169.1",
			"PEER_":     "icmp,nw_dst=172.30.0.12,icmp_type=3,icmp_code=4",
		},
		{
			"IP_":       "ipv6",
			"UDP_":      "udp6",
			"SRC_":      "ipv6_src",
			"DST_":      "ipv6_dst",
			"NODE_":     nodeIP6,
			"OTHER_":    "fd00:172:30::111",
			"SUBNET_":   "fd00:172:30::/64",
			"PODS_":     "fd00:10:244::/48",
			"SERVICES_": "fd00:10:96::/112",
			"HOSTMASQ_": "fd69::2",
			"OVNMASQ_":  "fd69::1",
			"PEER_":     "icmp6,ipv6_dst=fd00:172:30::12,icmpv6_type=2,icmpv6_code=0",
		},
	} {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(f)) {
			pairs = append(pairs, k, f[k])
		}

		text += strings.NewReplacer(pairs...).Replace(ovnkFamily())
	}

	return common.Replace(text + ovnkNodePorts(services))
}

// ovnkCommon returns the flows for all IP families. Table 1 has packets from the wire after
// conntrack. Tables 2 and 3 send translated packets between host and Services: to OVN, and to the
// host.
func ovnkCommon() string {
	return fmt.Sprintf(`
		priority=10,dl_dst=MAC,actions=output:PATCH,NORMAL
		priority=10,in_port=PATCH,dl_src=MAC,actions=NORMAL
		priority=9,in_port=PATCH,actions=drop
		priority=0,actions=NORMAL
		cookie=%d,table=1,priority=10,dl_dst=MAC,actions=output:LOCAL
		table=1,priority=0,actions=NORMAL
		table=2,priority=100,actions=set_field:MAC->eth_dst,output:PATCH
		table=3,actions=move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:MAC->eth_dst,output:LOCAL
	`, ovnkNewToHost)
}

// ovnkIPv6ND are the flows for neighbour discovery, which conntrack does not know.
const ovnkIPv6ND = `
	priority=102,in_port=PATCH,dl_src=MAC,icmp6,icmpv6_type=135,actions=ct(commit,zone=64000,OVN_MARK),NORMAL
	priority=102,in_port=PATCH,dl_src=MAC,icmp6,icmpv6_type=136,actions=ct(commit,zone=64000,OVN_MARK),NORMAL
	priority=102,in_port=LOCAL,dl_src=MAC,icmp6,icmpv6_type=135,actions=ct(commit,zone=64000,HOST_MARK),NORMAL
	priority=102,in_port=LOCAL,dl_src=MAC,icmp6,icmpv6_type=136,actions=ct(commit,zone=64000,HOST_MARK),NORMAL
	table=1,priority=14,icmp6,icmpv6_type=134,actions=FLOOD
	table=1,priority=14,icmp6,icmpv6_type=136,actions=FLOOD
`

// ovnkFamily returns the flows of one IP family, in this order:
//
//   - path MTU messages about other nodes, and Geneve, which bypasses conntrack
//   - connections between the host and Services, by masquerade addresses (zones 64001 and 64002,
//     tables 4 and 5)
//   - reassembly of fragments (zone 63999), and egress IPs
//   - packets of pods and of the host, whose connections are marked (zone 64000)
//   - packets from the wire, by the mark of their connection (table 1), and BFD
func ovnkFamily() string {
	return fmt.Sprintf(`
		priority=700,in_port=PATCH,PEER_,actions=drop
		cookie=%[1]d,priority=205,in_port=WIRE,dl_dst=MAC,UDP_,udp_dst=6081,actions=output:LOCAL
		priority=200,in_port=WIRE,UDP_,udp_dst=6081,actions=NORMAL
		cookie=%[2]d,priority=200,in_port=LOCAL,UDP_,udp_dst=6081,actions=output:WIRE
		priority=500,in_port=PATCH,IP_,DST_=HOSTMASQ_,SRC_=NODE_,actions=ct(commit,zone=64001,nat(dst=NODE_),table=4)
		priority=500,in_port=PATCH,IP_,DST_=OTHER_,SRC_=NODE_,actions=ct(commit,zone=64001,table=4)
		priority=500,in_port=LOCAL,IP_,DST_=OVNMASQ_,actions=ct(zone=64002,nat,table=5)
		priority=500,in_port=LOCAL,IP_,DST_=SERVICES_,actions=ct(commit,zone=64001,nat(src=HOSTMASQ_),table=2)
		priority=500,in_port=PATCH,IP_,SRC_=SERVICES_,DST_=HOSTMASQ_,actions=ct(zone=64001,nat,table=3)
		priority=115,in_port=PATCH,IP_,DST_=SERVICES_,actions=drop
		table=4,priority=0,IP_,actions=ct(commit,zone=64002,nat(src=OVNMASQ_),table=3)
		table=5,priority=0,IP_,actions=ct(commit,zone=64001,nat,table=2)
		priority=110,in_port=WIRE,IP_,nw_frag=yes,actions=ct(table=0,zone=63999)
		priority=105,in_port=PATCH,dl_src=MAC,IP_,pkt_mark=0x3f0,actions=ct(commit,zone=64000,nat(src=NODE_),OVN_MARK),output:WIRE
		priority=103,in_port=PATCH,IP_,SRC_=PODS_,actions=drop
		cookie=%[3]d,priority=102,in_port=PATCH,dl_src=MAC,IP_,DST_=SUBNET_,actions=ct(commit,zone=64000,OVN_MARK),NORMAL
		cookie=%[3]d,priority=100,in_port=PATCH,dl_src=MAC,IP_,actions=ct(commit,zone=64000,OVN_MARK),output:WIRE
		cookie=%[4]d,priority=102,in_port=LOCAL,dl_src=MAC,IP_,DST_=SUBNET_,actions=ct(commit,zone=64000,HOST_MARK),NORMAL
		priority=100,in_port=LOCAL,IP_,actions=ct(commit,zone=64000,HOST_MARK),output:WIRE
		cookie=%[5]d,priority=50,IP_,dl_dst=MAC,actions=ct(zone=64000,nat,table=1)
		cookie=%[6]d,table=1,priority=100,IP_,ct_state=+trk+est,ct_mark=0x1,actions=output:PATCH
		table=1,priority=100,IP_,ct_state=+trk+rel,ct_mark=0x1,actions=output:PATCH
		cookie=%[7]d,table=1,priority=100,IP_,ct_state=+trk+est,ct_mark=0x2,actions=output:LOCAL
		table=1,priority=100,IP_,ct_state=+trk+rel,ct_mark=0x2,actions=output:LOCAL
		table=1,priority=13,in_port=WIRE,UDP_,udp_dst=3784,actions=output:PATCH,output:LOCAL
	`, ovnkTunnelIn, ovnkTunnelOut, ovnkFromOVN, ovnkFromHost, ovnkFromWire, ovnkToOVN, ovnkToHost)
}

// ovnkNodePorts returns the pairs of flows that take NodePorts past conntrack, for the same
// NodePorts as with programs.
func ovnkNodePorts(services int) string {
	var flows strings.Builder

	for k := range nodePorts(services) {
		proto := "tcp"
		if k.Proto == unix.IPPROTO_UDP {
			proto = "udp"
		}

		if k.Addr.Is6() {
			proto += "6"
		}

		fmt.Fprintf(&flows, "cookie=%d,priority=110,in_port=WIRE,%s,tp_dst=%d,actions=output:PATCH\n", ovnkService, proto, k.Port)
		fmt.Fprintf(&flows, "cookie=%d,priority=110,in_port=PATCH,dl_src=MAC,%s,tp_src=%d,actions=output:WIRE\n", ovnkServiceOut, proto, k.Port)
	}

	return flows.String()
}

// watch checks that the test's packets matched exactly the flows of ovnkUses.
func (v *ovnk) watch(ctx context.Context, t test) (func(int) error, error) {
	return v.ovs.watchFlows(ctx, t, func(ops int, counts map[uint64]int) error {
		// The host's connections are marked by its first answer.
		counts[ovnkToHost] += counts[ovnkNewToHost]
		counts[ovnkNewToHost] = 0

		want := ovnkUses(t)

		for cookie := uint64(ovnkFromWire); cookie < ovnkLast; cookie++ {
			packets := 0
			if slices.Contains(want, cookie) {
				packets = t.packets(ops)
			}

			if err := t.expect(fmt.Sprintf("packets by breth0's flow %#x", cookie), counts[cookie], packets); err != nil {
				return err
			}
		}

		return nil
	})
}

// ovnkUses returns the cookies of the flows that handle the test's packets.
func ovnkUses(t test) []uint64 {
	switch {
	case t.overlay():
		return []uint64{ovnkTunnelIn, ovnkTunnelOut}
	case t.northSouth():
		return []uint64{ovnkFromOVN, ovnkFromWire, ovnkToOVN}
	case t.name == bench.NodePortLocal:
		return []uint64{ovnkService, ovnkServiceOut}
	case t.name == bench.NodePortRemote:
		return []uint64{ovnkService, ovnkServiceOut, ovnkTunnelIn, ovnkTunnelOut}
	}

	return []uint64{ovnkFromWire, ovnkToHost, ovnkFromHost}
}
