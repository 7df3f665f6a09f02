package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const pinDir = "/sys/fs/bpf/ovn-ebpf"

// ebpf is this project's gateway in layout direct: the uplink belongs to the host, breth0 has only
// its LOCAL port and the patch, and the programs redirect OVN's packets between them. Like a real
// node, it has both IP families, a secondary address, NodePorts and counters.
type ebpf struct {
	ovs      ovs
	log      *slog.Logger
	services int // Services that the node has

	gateway *bpf.Gateway
	sock    *bpf.Sock // nil until a test needs the translation of Services
	layout  verdict.Layout
	open    func(bpf.Options) (*bpf.Gateway, error) // nil: bpf.Open

	shortcuts bool          // established connections of the pod bypass OVS
	lease     time.Duration // of shortcuts; 0: the default; below 0: a shortcut is never valid
}

func (e *ebpf) traits() traits {
	name := bench.EBPF

	switch {
	case e.lease < 0:
		return traits{name: bench.NeverShort, layout: "direct", tests: []string{bench.NSUDPRR}, ipv6: []string{bench.NSUDPRR}}
	case e.shortcuts:
		name = bench.Shortcuts
	}

	return e.ovs.limit(traits{
		name: name, layout: "direct",
		tests: bench.Tests(),
		ipv6:  gatewayTests6(),
	})
}

func (e *ebpf) setup(ctx context.Context) error {
	if err := e.ovs.start(ctx); err != nil {
		return err
	}

	if err := hostAddresses(ctx, "eth0"); err != nil {
		return err
	}

	if err := e.ovs.vsctl(ctx, "add-br breth0 -- set bridge breth0 fail-mode=secure other_config:hwaddr="+nodeMAC); err != nil {
		return err
	}

	if err := script(ctx, nodeNS, `
		echo 49152-65535,30000-32767 >/proc/sys/net/ipv4/ip_local_reserved_ports
		echo 1 >/proc/sys/net/ipv6/conf/breth0/disable_ipv6
		echo 8 >/proc/sys/net/ipv4/conf/breth0/arp_ignore
		ip link set breth0 up
	`); err != nil {
		return err
	}

	if err := inNetns(nodeNS, e.attach); err != nil {
		return err
	}

	if err := e.ovs.flows(ctx, "breth0", `
		priority=100,in_port=LOCAL,actions=ALL
		priority=0,actions=LOCAL
	`); err != nil {
		return err
	}

	if err := e.ovs.integration(ctx, ":49152-65535", "breth0"); err != nil {
		return err
	}

	if err := e.attachPod(); err != nil {
		return err
	}

	return errors.Join(e.check(ctx), e.ovs.reached(ctx))
}

// attach loads the programs, fills their tables, and attaches them. It runs in the node's
// namespace.
func (e *ebpf) attach() error {
	uplink, err := net.InterfaceByName("eth0")
	if err != nil {
		return fmt.Errorf("find uplink: %w", err)
	}

	bridge, err := net.InterfaceByName("breth0")
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}

	open := e.open
	if open == nil {
		open = bpf.Open
	}

	opts := e.options()
	opts.Config.Uplink, opts.Config.Bridge, opts.Config.NodeMAC = uplink.Index, bridge.Index, verdict.MAC(uplink.HardwareAddr)

	gateway, err := open(opts)
	if err != nil {
		return err
	}

	e.gateway = gateway

	return errors.Join(
		gateway.SyncAddrs(hostAddrs(uplink, bridge)),
		gateway.SyncServices(nodePorts(e.services)),
		gateway.AttachBridge(bridge.Index),
		gateway.AttachUplink(uplink.Index),
	)
}

// options returns the options of the programs, without the devices. The agent's own are the same in
// all that a user sets (TestGateMeasuresDefaults).
func (e *ebpf) options() bpf.Options {
	return bpf.Options{
		PinDir: pinDir, Log: e.log, CountServices: 1000, Shortcuts: bpf.ShortcutOptions{On: e.shortcuts, Lease: e.lease},
		Config: bpf.Config{Layout: e.layout, Config: verdict.Config{
			Node4: netip.MustParseAddr(nodeIP), Node6: netip.MustParseAddr(nodeIP6),
			SNATPorts: snatPorts, GenevePort: genevePort,
			ServiceCIDRs: serviceCIDRs(), PodCIDRs: podCIDRs(), Internal: internalCIDRs(),
		}},
		Clsact: bpf.ClsactFuncs{ // Linux 6.1 has no tcx
			Attach: link.AttachClsact, Detach: link.DetachClsact, Attached: link.ClsactAttached,
		},
	}
}

// attachPod attaches the program of shortcuts, if they are on, to the pod's device.
func (e *ebpf) attachPod() error {
	return inNetns(nodeNS, func() error {
		pod, err := net.InterfaceByName("pod0")
		if err != nil {
			return fmt.Errorf("find pod's device: %w", err)
		}

		return e.gateway.AttachPod(pod.Index, pod.MTU, true)
	})
}

// translateServices enables the translation of Services for host sockets. The first Service is that
// of the test service_tcp_crr. It runs just before this test, so that earlier ones are not
// affected.
func (e *ebpf) translateServices(ctx context.Context) error {
	const cgroup = "/run/cgroup2"
	if _, err := command(ctx, "mkdir -p "+cgroup+"; mount -t cgroup2 none "+cgroup, "sh", "-e"); err != nil {
		return err
	}

	sock, err := bpf.OpenSock(bpf.CgroupOptions{PinDir: pinDir, CgroupPath: cgroup, Log: e.log})
	if err != nil {
		return err
	}

	e.sock = sock

	var services []bpf.SockService
	for i := range e.services {
		front, back := netip.AddrFrom4([4]byte{10, 96, 1 + byte(i>>8), byte(i)}), netip.AddrFrom4([4]byte{10, 244, 1 + byte(i>>8), byte(i)})
		services = append(services, bpf.SockService{Key: fmt.Sprintf("bench/%d", i), Ports: []bpf.SockPort{{
			Frontends: []netip.AddrPort{netip.AddrPortFrom(front, 80)}, Proto: unix.IPPROTO_TCP,
			Backends: []netip.AddrPort{netip.AddrPortFrom(back, 8080)},
		}}})
	}

	services[0].Ports[0].Frontends = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(clusterIP), 80)}

	services[0].Ports[0].Backends = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(outsideIP), servicePort)}
	if _, err := sock.SyncServices(services); err != nil {
		return err
	}

	return sock.Attach()
}

// hostAddrs returns the host's addresses: those of the devices and of loopback.
func hostAddrs(devices ...*net.Interface) map[netip.Addr]verdict.AddrKind {
	addrs := map[netip.Addr]verdict.AddrKind{netip.MustParseAddr("127.0.0.1"): verdict.AddrHost, netip.IPv6Loopback(): verdict.AddrHost}

	for _, d := range devices {
		got, err := d.Addrs()
		if err != nil {
			continue
		}

		for _, a := range got {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				addrs[p.Addr()] = verdict.AddrHost
			}
		}
	}

	return addrs
}

// nodePorts returns about count frontends, and those of the tests, for TCP and UDP in both
// families.
func nodePorts(count int) map[verdict.ServiceKey]verdict.ServiceOwner {
	ports := make(map[verdict.ServiceKey]verdict.ServiceOwner)

	add := func(port int) {
		for _, ip := range []string{nodeIP, nodeIP6} {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				ports[verdict.ServiceKey{Addr: netip.MustParseAddr(ip), Proto: proto, Port: uint16(port)}] = verdict.ServiceOVN
			}
		}
	}
	for i := range count / 4 {
		add(30000 + i%2768)
	}

	add(localNodePort)
	add(remoteNodePort)

	return ports
}

// check verifies layout direct.
func (e *ebpf) check(ctx context.Context) error {
	ports, err := e.ovs.ports(ctx)
	if err != nil {
		return err
	}

	patch, _, err := e.ovs.patchPort(ctx)
	if err != nil {
		return err
	}

	if !slices.Equal(ports, []string{patch}) {
		return fmt.Errorf("check: breth0 has ports %v, want the patch alone", ports)
	}

	if err := e.checkAttached(); err != nil {
		return err
	}

	return inNetns(nodeNS, func() error {
		breth0, err := net.InterfaceByName("breth0")
		if err != nil {
			return fmt.Errorf("check breth0: %w", err)
		}

		addrs, err := breth0.Addrs()
		if err != nil {
			return fmt.Errorf("check breth0: %w", err)
		}

		if len(addrs) > 0 {
			return fmt.Errorf("check: breth0 has addresses: %v", addrs)
		}

		return nil
	})
}

// checkAttached returns an error unless the programs are attached to uplink and bridge. It looks in
// the node's namespace, where the filters of clsact are.
func (e *ebpf) checkAttached() error {
	return inNetns(nodeNS, func() error {
		up, br, err := e.gateway.Attached()
		if err == nil && (!up || !br) {
			err = fmt.Errorf("to uplink %t, to bridge %t", up, br)
		}

		if err != nil {
			return fmt.Errorf("check: programs attached: %w", err)
		}

		return nil
	})
}

func (e *ebpf) podsIPv6(ctx context.Context) error { return e.ovs.podsIPv6(ctx) }

// uplinkReason returns the reason by which the uplink's program counts the packets of a test.
func uplinkReason(t test) string {
	switch {
	case t.overlay():
		return "geneve"
	case t.northSouth():
		return "snat_port"
	case t.nodePort():
		return "service"
	case t.name == bench.HostICMP:
		return "icmp_echo"
	}

	return "default"
}

// watch checks that the programs counted all of the test's packets under exactly one reason, and
// that OVN sent packets to the wire only in North-South tests.
func (e *ebpf) watch(ctx context.Context, t test) (func(int) error, error) {
	if t.nodePort() {
		if err := e.ovs.nodePorts(ctx); err != nil {
			return nil, err
		}
	}

	if t.name == bench.ServiceTCPCRR && e.sock == nil {
		if err := inNetns(nodeNS, func() error { return e.translateServices(ctx) }); err != nil {
			return nil, err
		}
	}

	if err := e.ovs.settle(ctx); err != nil {
		return nil, err
	}

	before, err := counters()
	if err != nil {
		return nil, err
	}

	return func(ops int) error {
		if err := e.ovs.settle(ctx); err != nil {
			return err
		}

		after, err := counters()
		if err != nil {
			return err
		}

		want := e.expectedPackets(t, ops)

		// Which packets use a shortcut depends on time, but the sum is exact.
		if e.shortcuts && e.lease >= 0 {
			e.log.Info("packets", "test", t.name, "operations", ops, "counts", increases(before, after))
			addCached(before)
			addCached(after)
		}

		for reason, n := range after {
			if slices.Contains(backgroundReasons(), reason) {
				continue
			}

			if err := t.expect("packets by BPF reason "+reason, n-before[reason], want[reason]); err != nil {
				return err
			}
		}

		return nil
	}, nil
}

// expectedPackets returns the packets of a test by the direction and reason of their counters.
func (e *ebpf) expectedPackets(t test, ops int) map[string]int {
	packets := t.packets(ops)
	want := map[string]int{"rx " + uplinkReason(t): packets}

	if t.northSouth() || t.nodePort() {
		want["tx out"] = packets
	}

	if t.name == bench.NodePortRemote { // replies of the pod on the other node
		want["rx geneve"] = packets
	}

	if e.layout == verdict.Bridged && t.hostSends() { // in this layout, the host's packets pass a program as well
		want["tx host_out"] = packets
	}

	return want
}

// addCached adds the packets that used a shortcut to those that passed OVS for the same reason.
func addCached(counts map[string]int) {
	for cached, plain := range map[string]string{"rx snat_cached": "rx snat_port", "rx service_cached": "rx service", "tx out_cached": "tx out"} {
		counts[plain] += counts[cached]
		delete(counts, cached)
	}
}

// increases returns the differences of the counters, without zeros.
func increases(before, after map[string]int) map[string]int {
	out := make(map[string]int)

	for reason, n := range after {
		if n != before[reason] {
			out[reason] = n - before[reason]
		}
	}

	return out
}

// backgroundReasons returns the reasons of traffic that is not the tests': neighbour discovery, ARP
// and multicast, among them OVN's resolution of next hops.
func backgroundReasons() []string {
	return []string{"tx neighbour_out", "rx arp_request", "rx arp_other", "rx nd_solicit", "rx nd_other", "rx nd_advert", "rx router_advert", "rx multicast"}
}

// counters returns the packets that the programs have counted, by direction and reason ("rx
// geneve").
func counters() (map[string]int, error) {
	list, err := bpf.ReadCounters(pinDir)
	if err != nil {
		return nil, err
	}

	counts := map[string]int{}
	for _, c := range list {
		counts[c.Direction+" "+c.Reason] += int(c.Packets)
	}

	return counts, nil
}
