package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// flowed is this project's gateway without programs: layout bridged with the flows of the OpenFlow
// backend, for the same node as in ebpf.
type flowed struct {
	ovs      ovs
	services int
}

func (*flowed) traits() traits {
	return traits{
		name: bench.OpenFlow, layout: "bridged",
		tests: gatewayTests(),
		ipv6:  gatewayTests6(),
	}
}

// Cookies of the flows that packets match first, by which watch counts the packets of each origin.
const (
	flowFromWire = iota + 0x20
	flowFromOVN
	flowOther
)

func (v *flowed) setup(ctx context.Context) error {
	if err := v.ovs.secureHost(ctx); err != nil {
		return err
	}

	mac, err := net.ParseMAC(nodeMAC)
	if err != nil {
		return err
	}

	var lines strings.Builder

	for _, f := range openflow.Flows(flowInput(verdict.MAC(mac), v.services)) {
		cookie := flowOther

		switch {
		case strings.HasPrefix(f, fmt.Sprintf("priority=100,in_port=%d", uplinkPort)):
			cookie = flowFromWire
		case strings.HasPrefix(f, fmt.Sprintf("priority=100,in_port=%d", patchPort)):
			cookie = flowFromOVN
		}

		fmt.Fprintf(&lines, "cookie=%d,%s\n", cookie, strings.Replace(f, " actions=", ",actions=", 1))
	}

	return v.ovs.flows(ctx, "breth0", lines.String())
}

func (v *flowed) podsIPv6(ctx context.Context) error { return v.ovs.podsIPv6(ctx) }

// flowInput returns the input of the flows: the same configuration and tables as ebpf's.
func flowInput(mac verdict.MAC, count int) openflow.Input {
	addrs := map[netip.Addr]verdict.AddrKind{}
	for _, a := range []string{nodeIP, nodeIP2, nodeIP6} {
		addrs[netip.MustParseAddr(a)] = verdict.AddrHost
	}

	services := map[verdict.ServiceKey]verdict.ServiceOwner{}
	for k := range nodePorts(count) {
		services[k] = verdict.ServiceOVN
	}

	return openflow.Input{
		Ports: openflow.Ports{Uplink: uplinkPort, Patch: patchPort},
		Config: &verdict.Config{
			Connected: true, NodeMAC: mac, Node4: netip.MustParseAddr(nodeIP), Node6: netip.MustParseAddr(nodeIP6),
			SNATPorts: snatPorts, GenevePort: genevePort,
			ServiceCIDRs: serviceCIDRs(), PodCIDRs: podCIDRs(), Internal: internalCIDRs(), Mode: verdict.Mode{InSync: true},
		},
		Tables: &verdict.Tables{Addrs: addrs, Services: services},
	}
}

// watch checks that the test's packets matched the flows, and that only North-South tests have
// packets from OVN.
func (v *flowed) watch(ctx context.Context, t test) (func(int) error, error) {
	return v.ovs.watchFlows(ctx, t, func(ops int, packets map[uint64]int) error {
		fromOVN := 0
		if t.northSouth() || t.nodePort() {
			fromOVN = t.packets(ops)
		}

		fromWire := t.packets(ops)
		if t.name == bench.NodePortRemote { // packets of the client, and of the pod through Geneve
			fromWire *= 2
		}

		if err := t.expect("packets from the wire by the flows", packets[flowFromWire], fromWire); err != nil {
			return err
		}

		return t.expect("packets from OVN by the flows", packets[flowFromOVN], fromOVN)
	})
}

// Input of the programs and the flows about the node.
var snatPorts = cluster.PortRange{First: 49152, Last: 65535}

const genevePort = 6081

func serviceCIDRs() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
}

func podCIDRs() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}
}

// internalCIDRs returns networks that never occur on the wire.
func internalCIDRs() []netip.Prefix {
	return append(append(serviceCIDRs(), podCIDRs()...),
		netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64"),
		netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("fd69::/125"))
}
