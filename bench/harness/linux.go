package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// routedPod puts the pod behind a veth that the host routes to.
const routedPod = `
	link set pod0 address ` + routerMAC + `
	addr add ` + routerIP + `/24 dev pod0
	neigh replace ` + podIP + ` lladdr ` + podMAC + ` dev pod0 nud permanent
`

// kernelGeneve is the overlay without OVS: the kernel's Geneve device and routes.
const kernelGeneve = `
	link add gnv0 address ` + farRouterMAC + ` mtu 1400 type geneve id 1 remote ` + outsideIP + ` udpcsum
	link set gnv0 up
	route add ` + farPodNet + ` dev gnv0
	neigh replace ` + farPodIP + ` lladdr ` + farPodMAC + ` dev gnv0 nud permanent
`

const forward = `echo 1 >/proc/sys/net/ipv4/ip_forward`

// routedPod6 and forward6 are the same for IPv6, applied just before the tests of pods over IPv6.
const (
	routedPod6 = `
		addr add ` + routerIP6 + `/64 dev pod0 nodad
		neigh replace ` + podIP6 + ` lladdr ` + podMAC + ` dev pod0 nud permanent
	`
	forward6 = `echo 1 >/proc/sys/net/ipv6/conf/all/forwarding`
)

// noOVS is a host with an exclusive uplink. Its overlay is the kernel's Geneve device with routes
// to the pod's veth.
type noOVS struct{}

func (*noOVS) traits() traits {
	return traits{
		name: bench.NoOVS, layout: "none",
		tests: append(hostTests(), bench.OverlayUDPRR, bench.OverlayTCPRR),
		ipv6:  append(hostTests6(), bench.OverlayUDPRR),
	}
}

func (*noOVS) setup(ctx context.Context) error {
	if err := hostAddresses(ctx, "eth0"); err != nil {
		return err
	}

	if err := ipBatch(ctx, nodeNS, routedPod+kernelGeneve); err != nil {
		return err
	}

	if err := script(ctx, nodeNS, forward); err != nil {
		return err
	}

	for _, module := range []string{"openvswitch", "nf_conntrack", "nf_tables"} {
		if loaded(module) {
			return fmt.Errorf("check: module %s is loaded", module)
		}
	}

	return nil
}

func (*noOVS) podsIPv6(ctx context.Context) error {
	if err := script(ctx, nodeNS, forward6); err != nil {
		return err
	}

	return ipBatch(ctx, nodeNS, routedPod6+`
		route add `+farPodNet6+` dev gnv0
		neigh replace `+farPodIP6+` lladdr `+farPodMAC+` dev gnv0 nud permanent
	`)
}

func (*noOVS) watch(context.Context, test) (func(int) error, error) {
	return func(int) error { return nil }, nil
}

// masquerade is Linux without OVS: the pod is routed, and nftables translates its traffic to the
// node's address.
type masquerade struct {
	flowtable  bool // established connections bypass the routing
	translates bool // NodePorts
}

func (m *masquerade) traits() traits {
	t := traits{
		name: bench.Masquerade, layout: "none",
		tests: append(hostTests(), bench.NSUDPRR, bench.NSTCPRR, bench.NSTCPCRR, bench.NodePortLocal, bench.NodePortRemote),
		ipv6:  []string{bench.NSUDPRR, bench.NSTCPCRR},
	}
	if m.flowtable {
		t.name = bench.Flowtable
	}

	return t
}

func (m *masquerade) setup(ctx context.Context) error {
	if err := hostAddresses(ctx, "eth0"); err != nil {
		return err
	}

	if err := ipBatch(ctx, nodeNS, routedPod); err != nil {
		return err
	}

	if err := script(ctx, nodeNS, forward+"\n"+m.table("ip", podNet)); err != nil {
		return err
	}

	if loaded("openvswitch") {
		return fmt.Errorf("check: module openvswitch is loaded")
	}

	return nil
}

// table returns the rules of one family as a script.
func (m *masquerade) table(family, net string) string {
	fast := ""
	if m.flowtable {
		fast = `
			counter forwarded { }
			flowtable fast { hook ingress priority filter; devices = { eth0, pod0 }; }
			chain forward {
				type filter hook forward priority filter
				counter name forwarded
				meta l4proto { tcp, udp } flow add @fast
			}`
	}

	return fmt.Sprintf(`nft -f - <<'END'
		table %[1]s bench {
			counter masqueraded { }
			%[2]s
			chain postrouting {
				type nat hook postrouting priority srcnat
				%[1]s saddr %[3]s oifname "eth0" counter name masqueraded masquerade
			}
		}
END`, family, fast, net)
}

func (m *masquerade) podsIPv6(ctx context.Context) error {
	if err := ipBatch(ctx, nodeNS, routedPod6); err != nil {
		return err
	}

	return script(ctx, nodeNS, forward6+"\n"+m.table("ip6", podNet6))
}

// watch checks that exactly the pod's connections were masqueraded: the rule sees the first packet
// of each. With a flowtable, it checks that open connections left the routing after their first
// packets.
func (m *masquerade) watch(ctx context.Context, t test) (func(int) error, error) {
	if t.nodePort() {
		if err := m.nodePorts(ctx); err != nil {
			return nil, err
		}
	}

	before, err := counted(ctx, t, "masqueraded")
	if err != nil {
		return nil, err
	}

	routed := 0
	if m.flowtable {
		if routed, err = counted(ctx, t, "forwarded"); err != nil {
			return nil, err
		}
	}

	return func(ops int) error {
		after, err := counted(ctx, t, "masqueraded")
		if err != nil {
			return err
		}

		if err := t.expect("connections masqueraded", after-before, t.connections(ops, t.northSouth())); err != nil {
			return err
		}

		if !m.flowtable || !t.northSouth() || t.connects() {
			return nil
		}

		const beforeFlowtable = 8 // maximum number of packets of a flow before the flowtable takes it

		n, err := counted(ctx, t, "forwarded")
		if err == nil && n-routed > beforeFlowtable*t.flowNumber() {
			err = fmt.Errorf("check: %d packets of %d flows were routed: the flowtable does not take them", n-routed, t.flowNumber())
		}

		return err
	}, nil
}

// nodePorts adds the test's NodePorts as kube-proxy does: the connection goes to the pod with the
// node's source address. It runs late, so that earlier tests are not affected.
func (m *masquerade) nodePorts(ctx context.Context) error {
	if m.translates {
		return nil
	}

	m.translates = true

	if err := errors.Join(farJoin(ctx), ipBatch(ctx, nodeNS, kernelGeneve)); err != nil {
		return err
	}

	return script(ctx, nodeNS, fmt.Sprintf(`nft -f - <<'END'
		table ip ports {
			chain local { meta l4proto tcp dnat to %[4]s:%[6]d; }
			chain remote { meta l4proto tcp dnat to %[5]s:%[6]d; }
			chain prerouting {
				type nat hook prerouting priority dstnat
				ip daddr %[1]s tcp dport vmap { %[2]d : goto local, %[3]d : goto remote }
			}
			chain postrouting {
				type nat hook postrouting priority srcnat
				ct status dnat snat to %[7]s
			}
		}
END`, nodeIP, localNodePort, remoteNodePort, podIP, farPodIP, podPort, joinIP))
}

// counted returns the packets of a named counter of nftables, of the test's IP family.
func counted(ctx context.Context, t test, counter string) (int, error) {
	var n int

	err := inNetns(nodeNS, func() error {
		family := "ip"
		if t.family == bench.IPv6 {
			family = "ip6"
		}

		out, err := command(ctx, "", "nft", "list", "counter", family, "bench", counter)
		if err != nil {
			return err
		}

		_, rest, _ := strings.Cut(out, "packets ")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return fmt.Errorf("parse nft counter %q: %w", out, err)
		}

		return nil
	})

	return n, err
}

// loaded reports whether the kernel has the module.
func loaded(module string) bool {
	_, err := os.Stat("/sys/module/" + module)
	return err == nil
}
