package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

const (
	shortNodePort = 30086
	lease         = time.Second // of a shortcut
)

// shortcutTests are what docs/shortcuts.md promises, on real OVN.
var shortcutTests = []struct {
	name string
	run  func(*testing.T, *shortcutRig)
}{
	{"counters are exact", testShortcutCounters},
	{"frames are the same", testShortcutFrames},
	{"listed and ended by command", testShortcutCommand},
	{"what must see every packet", testShortcutObservers},
	{"a pod with a bandwidth limit", testShortcutLimited},
	{"flows change ten times per second", testShortcutChurn},
	{"policy, agent alive", func(t *testing.T, r *shortcutRig) { testShortcutPolicy(t, r, "alive") }},
	{"policy, agent dead", func(t *testing.T, r *shortcutRig) {
		r.withoutAgent(t, func() { testShortcutPolicy(t, r, "dead") })
	}},
	{"connection tracker flushed", testShortcutFlushed},
	{"connection tracker flushed, agent dead", func(t *testing.T, r *shortcutRig) {
		r.withoutAgent(t, func() { testShortcutFlushed(t, r) })
	}},
	{"next hop moved", testShortcutNextHop},
	{"next hop moved, agent dead", func(t *testing.T, r *shortcutRig) {
		r.withoutAgent(t, func() { testShortcutNextHop(t, r) })
	}},
	{"way out by another node", testShortcutMoved},
	{"way out by another node, agent dead", func(t *testing.T, r *shortcutRig) {
		r.withoutAgent(t, func() { testShortcutMoved(t, r) })
	}},
	{"next hop of several removed", testShortcutECMP},
	{"gateway drained", testShortcutDrained},
	{"NodePort removed", testShortcutNodePort},
	{"processes killed", testShortcutKills},
	{"address of a pod reused", testShortcutReuse},
}

// hasShortcuts reports whether established connections of the cluster's pods may bypass OVS.
func (c *Cluster) hasShortcuts() bool {
	return c.Datapath() == "system" && c.layout != dedicated && !c.flows && !c.local
}

// shortcutsUsed checks that connections of pods have bypassed OVS.
func shortcutsUsed(t *testing.T, l *lab.Lab) {
	t.Helper()

	var in, out uint64

	for _, n := range l.Nodes() {
		counters, err := bpf.ReadCounters(n.PinDir)
		if err != nil {
			t.Fatal(err)
		}

		for _, c := range counters {
			switch c.Reason {
			case "snat_cached", "service_cached":
				in += c.Packets
			case "out_cached":
				out += c.Packets
			}
		}
	}

	if in == 0 || out == 0 {
		t.Errorf("%d packets to pods and %d of pods bypassed OVS", in, out)
	}

	t.Logf("%d packets to pods and %d of pods bypassed OVS", in, out)
}

// testShortcuts runs shortcutTests with a pod that has a NodePort.
func testShortcuts(t *testing.T, c *Cluster) {
	pod, err := c.AddPod(t.Context(), lab.PodSpec{Name: "short", Node: "node1", Labels: map[string]string{"app": "short"}})
	if err != nil {
		t.Fatal(err)
	}

	r := &shortcutRig{Cluster: c, pin: c.Node(1).PinDir, pod: pod, nodePort: shortNodePort}

	if err := r.serve(t.Context(), pod.Host(), "short-"+pod.UID[:8], podPort); err != nil {
		t.Fatal(err)
	}

	spec := lab.ServiceSpec{
		Name: "short", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, shortNodePort), Pods: []*lab.Pod{r.pod},
		Change: func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
	}
	if err := c.addService(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(c.DelService(ctx, "default", spec.Name), c.DelPod(ctx, r.pod)); err != nil {
			t.Error(err)
		}
	}()

	c.reachable(t,
		way{name: "pod to outside", from: r.pod.Host(), to: outside, port: outsidePort},
		way{name: "outside to the pod's NodePort", from: "ext", to: c.gateway(1), port: shortNodePort},
		way{name: "pod to pod", from: r.pod.Host(), to: c.pod("b"), port: podPort},
	)

	for _, s := range shortcutTests {
		t.Run(s.name, func(t *testing.T) { s.run(t, r) })
	}
}

// testShortcutCounters: each datagram is counted once, by its reason, for its Service and for its pod.
func testShortcutCounters(t *testing.T, r *shortcutRig) {
	for _, inward := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			if _, err := r.settled(); err != nil {
				t.Fatal(err)
			}

			const service, pod = "ovnkube_gateway_service_packets_total", "ovnkube_node_pod_network_receive_packets_total"

			before, served, received := r.counts(t), r.metric(t, service, "service"), r.metric(t, pod, "pod")
			l := r.open(t, inward, true, v6, 20*time.Millisecond)
			r.short(t, l)
			r.renewed(t, l)

			sent := uint64(l.stopped(t).Sent)
			if _, err := r.settled(); err != nil {
				t.Fatal(err)
			}

			moved := r.counts(t)
			for reason := range moved {
				moved[reason] -= before[reason]
			}

			in, past := moved["snat_port"], moved["snat_cached"]
			if inward {
				in, past = moved["service"], moved["service_cached"]
			}

			if in+past != sent || moved["out"]+moved["out_cached"] != sent {
				t.Errorf("%s: %d exchanges, counted %d in (%d past OVS) and %d out (%d past OVS)", l.name, sent, in+past, past, moved["out"]+moved["out_cached"], moved["out_cached"])
			}

			if past*2 < sent || moved["out_cached"]*2 < sent {
				t.Errorf("%s: of %d exchanges only %d in and %d out went past OVS", l.name, sent, past, moved["out_cached"])
			}

			if got := r.metric(t, service, "service") - served; inward && got != float64(sent) {
				t.Errorf("%s: %v packets for the Service, want %d", l.name, got, sent)
			}
			// Neighbour discovery adds some.
			if got := r.metric(t, pod, "pod") - received; got < float64(sent) || got > float64(sent)+20 {
				t.Errorf("%s: %v packets received by the pod, want %d", l.name, got, sent)
			}

			t.Logf("%s: of %d exchanges %d in and %d out past OVS", l.name, sent, past, moved["out_cached"])

			if c, err := bpf.ReadShortcutCounts(r.pin); err != nil || c.Mismatched != 0 || c.Renewed == 0 {
				t.Errorf("%s: OVS contradicted %d leases of %d (%v)", l.name, c.Mismatched, c.Renewed, err)
			}
		}
	}
}

// testShortcutCommand: the command lists connections in use, and ends them.
func testShortcutCommand(t *testing.T, r *shortcutRig) {
	lines := r.openAll(t)
	command := func(argv ...string) string {
		return r.execute(t, "node1", append([]string{r.Binary("ovnkube"), "gateway", "shortcuts", "-pin-dir", r.pin}, argv...)...)
	}

	within(t, "all lines listed", func() error {
		out := command()
		for _, l := range lines {
			if strings.Count(out, l.pod.String()) < 2 {
				return fmt.Errorf("not both directions of %s in:\n%s", l.name, out)
			}
		}

		return nil
	})

	before, err := bpf.ReadShortcutCounts(r.pin)
	if err != nil {
		t.Fatal(err)
	}

	command("-flush")

	if out := command("-count"); !strings.Contains(out, "epoch") {
		t.Errorf("counts: %s", out)
	}

	if after, err := bpf.ReadShortcutCounts(r.pin); err != nil || after.Epoch <= before.Epoch {
		t.Errorf("epoch %d, before %d (%v)", after.Epoch, before.Epoch, err)
	}

	r.short(t, lines...)
	survived(t, lines, 0)
}

// testShortcutObservers: a mirror that appears under connections sees every packet from then on, and
// with a stateless ACL every packet passes OVS.
func testShortcutObservers(t *testing.T, r *shortcutRig) {
	const match = "udp.dst == 9"

	nbctl := func(argv ...string) {
		t.Helper()
		r.execute(t, "central", append([]string{"ovn-nbctl", "--db=" + r.NBAddress(), "--wait=hv", "--timeout=60"}, argv...)...)
	}

	t.Run("mirror", func(t *testing.T) { r.observed(t, "a mirror on br-int", r.mirror) })
	t.Run("stateless ACL", func(t *testing.T) {
		r.observed(t, "are of stateless ACLs", func(*testing.T) func() {
			nbctl("acl-add", "node1", "to-lport", "1500", match, "allow-stateless")
			return sync.OnceFunc(func() { nbctl("acl-del", "node1", "to-lport", "1500", match) })
		})
	})
}

// observed checks that no packet bypasses OVS while something observes the node's packets, and that
// status says so.
func (r *shortcutRig) observed(t *testing.T, says string, observe func(*testing.T) (cancel func())) {
	lines := r.openAll(t)

	cancel := observe(t)
	defer cancel()

	r.noShortcuts(t)
	before := r.counts(t)

	time.Sleep(2 * lease)

	after := r.counts(t)
	for _, reason := range []string{"snat_cached", "service_cached", "out_cached"} {
		if n := after[reason] - before[reason]; n != 0 {
			t.Errorf("%d packets by %s", n, reason)
		}
	}

	if after["snat_port"] == before["snat_port"] || after["service"] == before["service"] {
		t.Errorf("the connections do not pass OVS: %v, before %v", after, before)
	}

	r.says(t, says)
	cancel()
	r.short(t, lines...)
	survived(t, lines, 1)
}

// testShortcutLimited: a pod with a bandwidth limit has no shortcuts, and status counts it.
func testShortcutLimited(t *testing.T, r *shortcutRig) {
	pod, err := r.AddPod(t.Context(), lab.PodSpec{Name: "slow", Node: "node1", Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "10M"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	}()

	limited := *r
	limited.pod = pod
	r.port += 10
	r.reachable(t, way{name: "limited pod to outside", from: pod.Host(), to: outside, port: outsidePort})

	var lines []*line
	for _, v6 := range []bool{false, true} {
		lines = append(lines, limited.open(t, false, true, v6, 50*time.Millisecond))
	}

	r.port = limited.port

	for range 20 {
		time.Sleep(100 * time.Millisecond)

		for _, l := range lines {
			if pod, wire, err := r.entries(l); err != nil || pod != nil || wire != nil {
				t.Fatalf("%s: entries %+v and %+v (%v)", l.name, pod, wire, err)
			}
		}
	}

	r.says(t, "1 may not because of a bandwidth limit")
	survived(t, lines, 0)
}

// testShortcutFlushed: after a flush of the connection tracker, a translation to another port is
// followed.
func testShortcutFlushed(t *testing.T, r *shortcutRig) {
	var lines []*line

	for _, v6 := range []bool{false, true} {
		for _, inward := range []bool{false, true} {
			lines = append(lines, r.open(t, inward, true, v6, 50*time.Millisecond))
		}
	}

	r.short(t, lines...)

	const flushes = 3
	for range flushes {
		r.execute(t, "node1", "ovs-appctl", "-t", "ovs-vswitchd", "dpctl/flush-conntrack")
		time.Sleep(2 * lease)
		r.renewed(t, lines...)

		tracked := r.trackedBy(t, "node1")
		for _, l := range lines {
			if pod := r.leased(t, l); !translates(tracked, pod) {
				t.Errorf("%s: %+v is not what the connection tracker has:\n%s", l.name, pod, tracked)
			}
		}
	}

	survived(t, lines, flushes)
}

// translates reports whether the connection tracker has the translation of a pod's packets.
func translates(tracked string, pod *bpf.Shortcut) bool {
	from := fmt.Sprintf("src=%s,dst=%s,sport=%d,dport=%d", pod.Src.Addr(), pod.Dst.Addr(), pod.Src.Port(), pod.Dst.Port())

	as := fmt.Sprintf("src=%s,dst=%s,sport=%d,dport=%d", pod.NewDst.Addr(), pod.NewSrc.Addr(), pod.NewDst.Port(), pod.NewSrc.Port())
	for line := range strings.Lines(tracked) {
		if strings.Contains(line, from) && strings.Contains(line, as) {
			return true
		}
	}

	return false
}

// testShortcutNextHop: the next hop gets another MAC address and announces it.
func testShortcutNextHop(t *testing.T, r *shortcutRig) {
	device := r.ExtDevice()
	_, rest, _ := strings.Cut(r.execute(t, "ext", "ip", "-o", "link", "show", device), "link/ether ")
	was, _, _ := strings.Cut(rest, " ")

	for _, family := range []string{"ipv4.conf." + device + ".arp_notify", "ipv6.conf." + device + ".ndisc_notify"} {
		r.execute(t, "ext", "sysctl", "-qw", "net."+family+"=1")
	}

	lines := r.openAll(t)
	for _, mac := range []string{"02:00:00:00:be:ef", was} {
		r.execute(t, "ext", "ip", "link", "set", device, "address", mac)
		r.renewed(t, lines...)
		r.reachable(t, way{name: "pod to outside", from: r.pod.Host(), to: outside, port: outsidePort})
	}

	survived(t, lines, 2)
}

// testShortcutNodePort: when a NodePort is removed, its connections have no shortcuts any more,
// although OVN's connection tracker still has them.
func testShortcutNodePort(t *testing.T, r *shortcutRig) {
	const nodePort = shortNodePort + 1

	spec := lab.ServiceSpec{
		Name: "short-lived", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, nodePort), Pods: []*lab.Pod{r.pod},
		Change: func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
	}
	r.tempService(t, spec)
	r.reachable(t, way{name: "outside to the other NodePort", from: "ext", to: r.gateway(1), port: nodePort})
	other := *r
	other.nodePort = nodePort

	var lines []*line
	for _, v6 := range []bool{false, true} {
		lines = append(lines, other.open(t, true, true, v6, 20*time.Millisecond))
	}

	r.port = other.port
	r.short(t, lines...)

	if err := r.DelService(t.Context(), "default", spec.Name); err != nil {
		t.Fatal(err)
	}

	delete(r.Services, spec.Name)
	before := r.counts(t)
	within(t, "no packet to the removed NodePort by the verdict of a Service", func() error {
		was := before

		before = r.counts(t)
		for _, reason := range []string{"service", "service_cached"} {
			if n := before[reason] - was[reason]; n > 0 {
				return fmt.Errorf("%d packets by %s", n, reason)
			}
		}

		if before["default"] == was["default"] {
			return errors.New("no packet to the host")
		}

		return nil
	})

	for _, l := range lines {
		l.stop(t)
		<-l.done // with an error: the host refuses its packets
	}
}

// killInterval is the time between two packets of a connection of testShortcutKills.
const killInterval = 100 * time.Millisecond

// testShortcutKills: leases go on without the agent, ovn-controller and ovs-vswitchd. TCP loses nothing,
// and UDP little more than a connection to another pod, which always passes OVS. In addition, it loses
// packets until the agent has started that is killed together with ovs-vswitchd.
func testShortcutKills(t *testing.T, r *shortcutRig) {
	var references []*line

	for _, v6 := range []bool{false, true} {
		to := port(r.Cluster.pod("b")(v6), podPort)
		references = append(references, &line{proto: 17, background: r.hold(t, "by OVS, "+Result{V6: v6}.Family(), r.pod.Host(), to, time.Hour, "-udp", "-interval", killInterval.String())})
	}

	lines := r.openAll(t)
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}
	kill := func(name string) (again func() error) {
		t.Helper()

		again, err := r.Kill(name)
		must(err)

		return again
	}

	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		must(r.StopAgent(1, sig))
		r.renewed(t, lines...)
		must(r.StartAgent(t.Context(), 1))
		must(r.AwaitAgent(t.Context(), 1))
		r.short(t, lines...)
	}

	again := kill("node1-ovn-controller")

	r.renewed(t, lines...)
	must(again())
	r.renewed(t, lines...)

	// An agent that cannot read flows allows no shortcuts.
	again = kill("node1-ovs-vswitchd")

	r.noShortcuts(t)
	must(again())
	r.short(t, lines...)

	must(r.StopAgent(1, syscall.SIGKILL))

	again = kill("node1-ovs-vswitchd")

	r.renewed(t, lines...) // by the datapath's flows
	must(again())

	began := time.Now() // the bridge has no flows until the new agent has written them

	must(r.StartAgent(t.Context(), 1))
	must(r.AwaitAgent(t.Context(), 1))

	duringStart := int(time.Since(began) / killInterval)

	r.short(t, lines...)

	lost := 0
	for _, l := range references {
		lost = max(lost, l.stopped(t).Lost)
	}

	lostAtMost(t, lines, duringStart+lost+lost/4+20)
}

// testShortcutReuse: a new pod has a former pod's addresses, and the outside host goes on sending to
// them. No shortcut of the former pod delivers to the new one, which gets shortcuts of its own.
func testShortcutReuse(t *testing.T, r *shortcutRig) {
	old := r.pod

	var inward, outward []*line
	for _, v6 := range []bool{false, true} {
		inward = append(inward, r.open(t, true, true, v6, 50*time.Millisecond))
		outward = append(outward, r.open(t, false, true, v6, 50*time.Millisecond))
	}

	r.short(t, inward...)
	r.short(t, outward...)

	device := r.device(t, inward[0])
	if err := r.DelPod(t.Context(), old); err != nil {
		t.Fatal(err)
	}

	within(t, "the former pod's entries are deleted", func() error {
		left := 0

		err := bpf.Shortcuts(r.pin, func(s bpf.Shortcut) {
			if s.Device == device {
				left++
			}
		})
		if left > 0 {
			err = fmt.Errorf("%d entries", left)
		}

		return err
	})

	request := annotation.FormatRequest(annotation.Request{Addresses: old.IPs})

	pod, err := r.AddPod(t.Context(), lab.PodSpec{Name: "short", Node: "node1", Labels: old.Labels, Annotations: map[string]string{annotation.DefaultNetwork: request}})
	if err != nil {
		t.Fatal(err)
	}

	r.pod = pod
	if pod.IP4() != old.IP4() || pod.IP6() != old.IP6() {
		t.Fatalf("addresses %v, want those of the former pod %v", pod.IPs, old.IPs)
	}

	time.Sleep(2 * lease)

	for _, l := range outward {
		<-l.done // it was killed with its pod
	}

	for _, l := range append(inward, outward...) {
		if pod, wire, err := r.entries(l); err != nil || pod != nil && pod.Left > 0 || wire != nil && wire.Left > 0 {
			t.Errorf("%s: in use for the former pod: %+v and %+v (%v)", l.name, pod, wire, err)
		}
	}

	now := r.hostEnd(t, pod)
	if now == device {
		t.Errorf("interface %d has the same number again", now)
	}

	if packets, _, err := bpf.PodReceived(r.pin, now); err != nil || packets != 0 {
		t.Errorf("%d packets for the former pod went to the new one past OVS (%v)", packets, err)
	}

	if err := r.serve(t.Context(), pod.Host(), "short-"+pod.UID[:8], podPort); err != nil {
		t.Fatal(err)
	}

	r.short(t, inward...)

	for _, l := range inward {
		if got := r.device(t, l); got != now {
			t.Errorf("%s: shortcuts for interface %d, want %d", l.name, got, now)
		}

		l.stopped(t)
	}

	survived(t, r.openAll(t), 0)
}
