package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/vm/clock"
)

// ovs is Open vSwitch on the node: ovsdb-server and ovs-vswitchd in its network namespace, with the
// kernel datapath.
type ovs struct {
	netns, dir string
	log        *slog.Logger
	ovn        bool // br-int's flows are real OVN's (ovn.go)
}

func newOVS(log *slog.Logger) ovs { return ovs{netns: nodeNS, dir: "/run/openvswitch", log: log} }

// start starts both daemons.
func (o ovs) start(ctx context.Context) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("start OVS: %w", err)
	}

	if err := clock.Await(ctx); err != nil { // an idle guest's seconds take no real time
		return fmt.Errorf("start OVS: %w", err)
	}

	return script(ctx, o.netns, `
		export OVS_RUNDIR=`+o.dir+`
		modprobe openvswitch
		ovsdb-tool create `+o.dir+`/conf.db `+platform.OVSFile("vswitch.ovsschema")+`
		ovsdb-server `+o.dir+`/conf.db --remote=punix:`+o.dir+`/db.sock --pidfile --detach --no-chdir --log-file=`+o.dir+`/ovsdb.log -vconsole:off
		ovs-vsctl --no-wait init
		ovs-vswitchd --pidfile --detach --no-chdir --log-file=`+o.dir+`/vswitchd.log -vconsole:off
	`)
}

// vsctl runs one ovs-vsctl; words are separated by blanks.
func (o ovs) vsctl(ctx context.Context, words string) error {
	return inNetns(o.netns, func() error {
		_, err := command(ctx, "", append([]string{"ovs-vsctl", "--db=unix:" + o.dir + "/db.sock"}, strings.Fields(words)...)...)
		return err
	})
}

// flows adds flows to a bridge.
func (o ovs) flows(ctx context.Context, bridge, flows string) error {
	var lines strings.Builder

	for line := range strings.Lines(flows) {
		if line = strings.TrimSpace(line); line != "" {
			lines.WriteString(line + "\n")
		}
	}

	return inNetns(nodeNS, func() error {
		_, err := command(ctx, lines.String(), "ovs-ofctl", "add-flows", bridge, "-")
		return err
	})
}

// settle removes the datapath's flows, so that the OpenFlow counters have all their packets. It
// returns an error if upcalls were lost.
func (o ovs) settle(ctx context.Context) error {
	return inNetns(nodeNS, func() error {
		show, err := command(ctx, "", "ovs-appctl", "dpctl/show")
		if err != nil {
			return err
		}

		if !strings.Contains(show, " lost:0\n") {
			return fmt.Errorf("check: OVS lost upcalls: %s", show)
		}

		_, err = command(ctx, "", "ovs-appctl", "revalidator/purge")

		return err
	})
}

// dumped matches a flow with a cookie in the output of ovs-ofctl dump-flows.
var dumped = regexp.MustCompile(`cookie=0x([0-9a-f]+),.* n_packets=(\d+),`)

// counters returns the packets of breth0's flows by cookie.
func (o ovs) counters(ctx context.Context) (map[uint64]int, error) {
	if err := o.settle(ctx); err != nil {
		return nil, err
	}

	counts := map[uint64]int{}
	err := inNetns(nodeNS, func() error {
		out, err := command(ctx, "", "ovs-ofctl", "dump-flows", "breth0")
		if err != nil {
			return err
		}

		for _, m := range dumped.FindAllStringSubmatch(out, -1) {
			cookie, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil {
				return fmt.Errorf("parse flow %q: %w", m[0], err)
			}

			n, err := strconv.Atoi(m[2])
			if err != nil {
				return fmt.Errorf("parse flow %q: %w", m[0], err)
			}

			counts[cookie] += n
		}

		return nil
	})

	return counts, err
}

// watchFlows prepares breth0 for the test. The result calls check with the packets that breth0's
// flows have counted since then, by cookie.
func (o ovs) watchFlows(
	ctx context.Context,
	t test,
	check func(ops int, packets map[uint64]int) error,
) (func(ops int) error, error) {
	if t.nodePort() {
		if err := o.nodePorts(ctx); err != nil {
			return nil, err
		}
	}

	before, err := o.counters(ctx)
	if err != nil {
		return nil, err
	}

	return func(ops int) error {
		packets, err := o.counters(ctx)
		if err != nil {
			return err
		}

		for cookie, n := range before {
			packets[cookie] -= n
		}

		return check(ops, packets)
	}, nil
}

// integration creates br-int with the pod and a Geneve port. Its flows do to the tests' packets
// what OVN's flows do: route, rewrite both MAC addresses, decrement the TTL, and translate
// North-South packets in one conntrack zone, which commits every packet as OVN does. snatPorts is
// the port range of SNAT as ":FIRST-LAST", or "" for all ports. uplink is the bridge with the other
// end of the patch, or "" for none. On real OVN, it starts OVN instead (realOVN).
//
// The ports of br-int are 1, the pod; 2, Geneve; 3, the patch.
func (o ovs) integration(ctx context.Context, snatPorts, uplink string) error {
	if o.ovn {
		return o.realOVN(ctx, snatPorts, uplink)
	}

	if err := o.vsctl(ctx, `add-br br-int -- set bridge br-int fail-mode=secure
		-- add-port br-int pod0 -- set interface pod0 ofport_request=1
		-- add-port br-int gnv -- set interface gnv ofport_request=2 type=geneve options:remote_ip=flow options:key=flow options:csum=true`); err != nil {
		return err
	}

	if uplink != "" {
		if err := o.vsctl(ctx, `add-port br-int patch-int -- set interface patch-int ofport_request=3 type=patch options:peer=patch-ext
			-- add-port `+uplink+` patch-ext -- set interface patch-ext ofport_request=2 type=patch options:peer=patch-int`); err != nil {
			return err
		}
	}

	return o.flows(ctx, "br-int", `
		priority=100,in_port=1,ip,nw_dst=`+farPodNet+`,actions=mod_dl_src:`+farRouterMAC+`,mod_dl_dst:`+farPodMAC+`,dec_ttl,set_field:1->tun_id,set_field:`+outsideIP+`->tun_dst,output:2
		priority=100,in_port=2,tun_id=1,ip,nw_dst=`+podIP+`,actions=mod_dl_src:`+routerMAC+`,mod_dl_dst:`+podMAC+`,dec_ttl,output:1
		priority=50,in_port=1,ip,actions=dec_ttl,ct(commit,zone=1,nat(src=`+nodeIP+snatPorts+`),table=1)
		table=1,priority=1,actions=mod_dl_src:`+nodeMAC+`,mod_dl_dst:`+outsideMAC+`,output:3
		priority=50,in_port=3,ip,nw_dst=`+nodeIP+`,actions=ct(zone=1,nat,table=2)
		table=2,priority=1,ip,nw_dst=`+podIP+`,actions=mod_dl_src:`+routerMAC+`,mod_dl_dst:`+podMAC+`,dec_ttl,output:1
	`)
}

// podsIPv6 adds the same for IPv6 to br-int. It runs late, so that earlier tests are not affected.
func (o ovs) podsIPv6(ctx context.Context) error {
	if o.ovn {
		return nil // from the start
	}

	const snatPorts = ":49152-65535"

	return o.flows(ctx, "br-int", `
		priority=100,in_port=1,ipv6,ipv6_dst=`+farPodNet6+`,actions=mod_dl_src:`+farRouterMAC+`,mod_dl_dst:`+farPodMAC+`,dec_ttl,set_field:1->tun_id,set_field:`+outsideIP+`->tun_dst,output:2
		priority=100,in_port=2,tun_id=1,ipv6,ipv6_dst=`+podIP6+`,actions=mod_dl_src:`+routerMAC+`,mod_dl_dst:`+podMAC+`,dec_ttl,output:1
		priority=50,in_port=1,ipv6,actions=dec_ttl,ct(commit,zone=1,nat(src=[`+nodeIP6+`]`+snatPorts+`),table=1)
		priority=50,in_port=3,ipv6,ipv6_dst=`+nodeIP6+`,actions=ct(zone=1,nat,table=2)
		table=2,priority=1,ipv6,ipv6_dst=`+podIP6+`,actions=mod_dl_src:`+routerMAC+`,mod_dl_dst:`+podMAC+`,dec_ttl,output:1
	`)
}

// nodePorts adds flows to br-int that do what OVN's load balancers do for the tests' NodePorts.
// They translate the destination to the pod (zone 2, table 5), and the client to the router's own
// address (zone 3, table 6). Replies are translated back in the opposite order (tables 7 and 8). It
// runs just before the tests of NodePorts, so that earlier ones are not affected.
func (o ovs) nodePorts(ctx context.Context) error {
	if err := farJoin(ctx); err != nil || o.ovn {
		return err
	}

	var flows strings.Builder
	for port, pod := range map[int]string{localNodePort: podIP, remoteNodePort: farPodIP} {
		fmt.Fprintf(&flows, "priority=60,in_port=3,tcp,nw_dst=%s,tp_dst=%d,actions=ct(commit,zone=2,nat(dst=%s:%d),table=5)\n", nodeIP, port, pod, podPort)
	}

	return o.flows(ctx, "br-int", flows.String()+`
		table=5,priority=1,tcp,actions=ct(commit,zone=3,nat(src=`+joinIP+`),table=6)
		table=6,priority=1,ip,nw_dst=`+podIP+`,actions=mod_dl_src:`+routerMAC+`,mod_dl_dst:`+podMAC+`,dec_ttl,output:1
		table=6,priority=1,ip,nw_dst=`+farPodIP+`,actions=mod_dl_src:`+farRouterMAC+`,mod_dl_dst:`+farPodMAC+`,dec_ttl,set_field:1->tun_id,set_field:`+outsideIP+`->tun_dst,output:2
		priority=110,in_port=1,tcp,nw_dst=`+joinIP+`,actions=ct(zone=3,nat,table=7)
		priority=110,in_port=2,tun_id=1,tcp,nw_dst=`+joinIP+`,actions=ct(zone=3,nat,table=7)
		table=7,priority=1,tcp,actions=ct(zone=2,nat,table=8)
		table=8,priority=1,tcp,actions=mod_dl_src:`+nodeMAC+`,mod_dl_dst:`+outsideMAC+`,dec_ttl,output:3
	`)
}

// patchPort returns the name and number of breth0's patch port to br-int, which ovn-controller
// makes on real OVN. It returns an error if there is not exactly one.
func (o ovs) patchPort(ctx context.Context) (name, number string, err error) {
	names, err := o.ports(ctx)
	if err != nil {
		return "", "", err
	}

	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "patch-") })
	if len(names) != 1 {
		return "", "", fmt.Errorf("check: breth0 has patch ports %v, want one", names)
	}

	err = inNetns(nodeNS, func() error {
		number, err = command(ctx, "", "ovs-vsctl", "get", "interface", names[0], "ofport")
		return err
	})

	return names[0], strings.TrimSpace(number), err
}

// ports returns the names of breth0's ports, in any order.
func (o ovs) ports(ctx context.Context) ([]string, error) {
	var names []string

	err := inNetns(nodeNS, func() error {
		out, err := command(ctx, "", "ovs-vsctl", "list-ports", "breth0")
		names = strings.Fields(out)

		return err
	})

	return names, err
}
