package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Tests of connections with shortcuts for which OVN chooses another way out: by another node, or by
// another next hop. OVS may renew a shortcut until it has revalidated its datapath flows, and never
// again. The bound is in leases, so that a slow machine does not change it.

// nbctl runs a command that returns when the chassis have applied it.
func (r *shortcutRig) nbctl(t *testing.T, argv ...string) string {
	t.Helper()
	return r.execute(t, "central", r.nbctlCommand(argv...)...)
}

func (r *shortcutRig) nbctlCommand(argv ...string) []string {
	return append([]string{"ovn-nbctl", "--db=" + r.NBAddress(), "--wait=hv", "--timeout=60"}, argv...)
}

// openOut holds UDP connections of the pod to the outside host's address, and waits until they have
// shortcuts. TCP would end when its source address changes.
func (r *shortcutRig) openOut(t *testing.T, to func(v6 bool) netip.Addr) (lines []*line) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		r.port++
		l := &line{proto: 17, pod: port(choose(v6, r.pod.IP4(), r.pod.IP6()), 20000+r.port), remote: port(to(v6), outsidePort)}
		l.background = r.hold(t, "pod to "+to(v6).String(), r.pod.Host(), l.remote, time.Hour,
			"-interval", "50ms", "-sport", fmt.Sprint(l.pod.Port()), "-timeout", "1m", "-udp")
		lines = append(lines, l)
	}

	r.short(t, lines...)

	return lines
}

// leases reads the entries of the lines' own packets.
func (r *shortcutRig) leases(t *testing.T, lines []*line) (entries []bpf.Shortcut) {
	t.Helper()

	for _, l := range lines {
		pod, _, err := r.entries(l)
		if err != nil || pod == nil {
			t.Fatalf("%s: entry %+v, %v", l.name, pod, err)
		}

		entries = append(entries, *pod)
	}

	return entries
}

// testShortcutMoved: OVN sends the pod's packets by node2's gateway, as after an egress address or a
// gateway router has moved. The pod's shortcuts at node1 end with their lease, and its connections
// go on by node2. They come back in the same way.
func testShortcutMoved(t *testing.T, r *shortcutRig) {
	const router, priority = "ovn_cluster_router", "2000"

	joins := strings.NewReplacer("[", "", "]", "", `"`, "", ",", " ").Replace(r.nbctl(t, "get", "Logical_Router_Port", "rtoj-GR_node2", "networks"))
	lines := r.openOut(t, outside)

	var matches []string // of policies

	back := sync.OnceFunc(func() {
		for _, match := range matches {
			r.nbctlLater(t, "lr-policy-del", router, priority, match)
		}
	})
	defer back()

	before := r.leases(t, lines)

	for _, join := range strings.Fields(joins) {
		hop := netip.MustParsePrefix(join).Addr()

		match := "ip4.src == " + r.pod.IP4().String()
		if hop.Is6() {
			match = "ip6.src == " + r.pod.IP6().String()
		}

		r.nbctl(t, "lr-policy-add", router, priority, match, "reroute", hop.String())
		matches = append(matches, match)
	}

	r.moved(t, lines, before)
	past := r.counts(t)["out_cached"]
	r.countedBy(t, 2, "out", "snat_port")

	if n := r.counts(t)["out_cached"] - past; n > 0 {
		t.Errorf("%d packets bypassed OVS at node1 after the pod's packets left by node2", n)
	}

	back()
	r.renewed(t, lines...)
	survived(t, lines, 2)
}

// nbctlLater is nbctl for a cleanup.
func (r *shortcutRig) nbctlLater(t *testing.T, argv ...string) {
	t.Helper()

	command := r.nbctlCommand(append([]string{"--if-exists"}, argv...)...)
	if out, err := r.Exec(context.WithoutCancel(t.Context()), "central", command...); err != nil {
		t.Errorf("%v: %v: %s", argv, err, out)
	}
}

// moved waits until the lines' shortcuts have ended, and checks that none is renewed or used during the
// next three leases. It logs how often OVS renewed them since before was read.
func (r *shortcutRig) moved(t *testing.T, lines []*line, before []bpf.Shortcut) {
	t.Helper()

	for i, l := range lines {
		var last bpf.Shortcut

		within(t, "end of the shortcuts of "+l.name, func() error {
			pod, wire, err := r.entries(l)
			if err != nil {
				return err
			}

			if pod != nil {
				last = *pod
			}

			if pod != nil && pod.Left > 0 || wire != nil && wire.Left > 0 {
				return fmt.Errorf("entries %+v and %+v", pod, wire)
			}

			return nil
		})
		t.Logf("%s: %d renewals before the change, %d when it had ended", l.name, before[i].Renewals, last.Renewals)
	}

	after := r.leases(t, lines)

	time.Sleep(3 * lease) // in which OVS would renew them three times

	for i, l := range lines {
		pod, wire, err := r.entries(l)
		if err != nil || pod != nil && (pod.Left > 0 || pod.Renewals != after[i].Renewals) || wire != nil && wire.Left > 0 {
			t.Errorf("%s: in use again: %+v and %+v, before %+v (%v)", l.name, pod, wire, after[i], err)
		}
	}
}

// countedBy waits until a node has counted more packets by each of the reasons.
func (r *shortcutRig) countedBy(t *testing.T, node int, reasons ...string) {
	t.Helper()

	at := *r
	at.pin = r.Node(node).PinDir
	before := at.counts(t)
	within(t, fmt.Sprintf("packets by node%d", node), func() error {
		now := at.counts(t)
		for _, reason := range reasons {
			if now[reason] < before[reason]+20 {
				return fmt.Errorf("%d packets by %s", now[reason]-before[reason], reason)
			}
		}

		return nil
	})
}

// testShortcutECMP: the gateway router has two next hops for a network. The next hop of a connection
// is removed, as OVN does when BFD reports it down. The connection's packets arrive at the other next
// hop, and bypass OVS again.
func testShortcutECMP(t *testing.T, r *shortcutRig) {
	const router, device = "GR_node1", "hop1"

	hops := r.addHop(t, device)

	var routes [][]string // to delete
	defer func() {
		for _, route := range routes {
			r.nbctlLater(t, append([]string{"lr-route-del", router}, route...)...)
		}
	}()

	for i, v6 := range []bool{false, true} {
		for _, hop := range []netip.Addr{outside(v6), hops[i].Addr()} {
			to := netip.PrefixFrom(beyond(v6), beyond(v6).BitLen()).String()
			r.nbctl(t, "--ecmp", "lr-route-add", router, to, hop.String(), "rtoe-"+router)
			routes = append(routes, []string{to, hop.String()})
		}
	}

	lines := r.openOut(t, beyond)
	for i, l := range lines {
		from, to := 2*i, 2*i+1 // routes that the line uses now, and then

		devices := map[int]string{from: r.ExtDevice(), to: device}
		if !r.arrives(t, l, devices[from]) {
			from, to = to, from
		}

		r.nbctl(t, append([]string{"lr-route-del", router}, routes[from]...)...)
		within(t, l.name+" by the other next hop", func() error {
			if r.arrives(t, l, devices[from]) || !r.arrives(t, l, devices[to]) {
				return fmt.Errorf("it still arrives at %s", devices[from])
			}

			return nil
		})
		r.renewed(t, l)

		if r.arrives(t, l, devices[from]) {
			t.Errorf("%s: past OVS, it arrives at %s", l.name, devices[from])
		}
	}

	survived(t, lines, 2)
}

// addHop gives the outside host a device of its own, with addresses of the uplink's network, until
// the test ends.
func (r *shortcutRig) addHop(t *testing.T, device string) []netip.Prefix {
	t.Helper()

	addresses := []netip.Prefix{netip.MustParsePrefix("172.30.0.223/24"), netip.MustParsePrefix("fd00:172:30::223/64")}
	r.addOutsideDevice(t, "hop0", device, addresses)

	for _, a := range addresses {
		within(t, "the host reaches the next hop", func() error {
			out, err := r.Exec(t.Context(), "node1", "ping", "-n", "-c1", "-W1", a.Addr().String())
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}

			return nil
		})
	}

	return addresses
}

// arrives reports whether packets of the line arrive at a device of the outside host.
func (r *shortcutRig) arrives(t *testing.T, l *line, device string) bool {
	t.Helper()
	out, err := r.Exec(t.Context(), "ext", "timeout", "2", "tcpdump", "-lnq", "-c", "3", "-Q", "in", "-i", device,
		"udp", "and", "host", l.remote.Addr().String(), "and", "port", fmt.Sprint(l.remote.Port()))
	t.Logf("%s at %s: %v: %s", l.name, device, err, out)

	return err == nil
}

// testShortcutDrained: the own pods of a drained gateway still leave by it, and keep their shortcuts.
func testShortcutDrained(t *testing.T, r *shortcutRig) {
	lines := r.openAll(t)
	for _, command := range []string{"drain-gateway", "undrain-gateway"} {
		if out, err := r.operator(t, command, "node1"); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}

		r.renewed(t, lines...)
	}

	survived(t, lines, 0)
}
