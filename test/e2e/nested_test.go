package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// TestNested shares one lab in underlay mode among its parts. Each part needs the end of the one before.
func TestNested(t *testing.T) {
	n := startNested(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *nested)
	}{
		{"paths", testNestedPaths},
		{"counters", testNestedCounters},
		{"spoofing", testNestedSpoofing},
		{"control plane dead", testNestedControlPlane},
		{"kill", testNestedKills},
		{"repairs and pool", testNestedRepairsAndPool},
		{"mode", testNestedMode},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, n) }) {
			t.FailNow()
		}
	}
}

// testNestedRepairsAndPool tests the pool of vm2 while the agent of vm1 takes its time to find what was
// removed.
func testNestedRepairsAndPool(t *testing.T, n *nested) {
	t.Run("repairs", func(t *testing.T) {
		t.Parallel()
		testNestedRepairs(t, n)
	})
	t.Run("pool", func(t *testing.T) {
		t.Parallel()
		n.deploy(t, "fill", "vm2")
		t.Run("last port", func(t *testing.T) { testNestedLastPort(t, n) })
		t.Run("held", func(t *testing.T) { testNestedHeld(t, n) })
		t.Run("bad pool", func(t *testing.T) { testNestedBadPool(t, n) })
	})
}

// end is an end of a path: a host of the lab with a server.
type end struct {
	name, on string
	address  netip.Addr
}

// podEnd returns the end of a pod.
func (n *nested) podEnd(name string) end { return end{name, host(name), n.sandbox(name).IP4()} }

// hosts returns the ends that are not pods.
func (n *nested) hosts() []end {
	return []end{
		{"vm1", "vm1", n.VM(1).IP4},
		{"vm2", "vm2", n.VM(2).IP4},
		{"plain", "plain", n.Plain().IP4},
		{"ext", "ext", outside(false)},
	}
}

// peers returns the other ends of the paths of a pod on vm1.
func (n *nested) peers() []end { return append(n.hosts(), n.podEnd("b"), n.podEnd("c")) }

// port returns the address of the end's server.
func (e end) port() string { return port(e.address, podPort).String() }

// extent is how much traffic is exchanged.
type extent struct {
	requests int  // of each kind
	all      bool // not only TCP and pings: also UDP, fragments, and packets that fill the MTU
}

func testNestedPaths(t *testing.T, n *nested) {
	for _, peer := range n.peers() {
		t.Run("pod and "+peer.name, func(t *testing.T) {
			n.exchange(t, n.podEnd("a"), peer, extent{requests: 10, all: true})
		})
	}
}

// talks checks that a pod reaches the peers, and they reach it.
func (n *nested) talks(t *testing.T, pod string, peers []end) {
	t.Helper()

	for _, peer := range peers {
		n.exchange(t, n.podEnd(pod), peer, extent{requests: 3})
	}
}

// exchange sends packets in both directions, after a ping that resolves neighbours along the path. No
// packet may be lost or arrive twice, and each server must see the client's own address.
func (n *nested) exchange(t *testing.T, a, b end, k extent) {
	t.Helper()
	n.execute(t, a.on, "ping", "-n", "-q", "-c", "1", "-w", "30", "-i", "0.1", b.address.String())

	dropped, lost := n.dropped(t), 0
	for _, kind := range n.kinds(k) {
		forth := n.run(t, kind.name, a.on, kind.argv(b)...)
		back := n.run(t, kind.name, b.on, kind.argv(a)...)
		lost += kind.check(t, forth, a, b) + kind.check(t, back, b, a)
	}

	n.explained(t, a.name+" and "+b.name, lost, dropped)
}

// explained fails the test if more packets were lost than the hypervisors have dropped since the call of
// dropped. ovs-vswitchd counts a second late.
func (n *nested) explained(t *testing.T, what string, lost, before int) {
	t.Helper()

	if lost == 0 {
		return
	}

	withinTime(t, 5*time.Second, what, func() error {
		dropped := n.dropped(t) - before
		if lost > dropped {
			return fmt.Errorf("%d packets lost, and the hypervisors have dropped %d", lost, dropped)
		}

		t.Logf("%s: %d packets lost: the hypervisors have dropped %d", what, lost, dropped)

		return nil
	})
}

// dropped returns the number of packets that the hypervisors have dropped.
func (n *nested) dropped(t *testing.T) int {
	t.Helper()

	sum, err := n.Dropped(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return sum
}

// kind is a kind of traffic between two ends.
type kind struct {
	name  string
	argv  func(to end) []string
	check func(t *testing.T, client *background, from, to end) (lost int)
}

// kinds returns the kinds of traffic. They are to run one after another, because the sockets of pings
// overflow with the replies to other pings of the same host.
func (n *nested) kinds(k extent) []kind {
	count := strconv.Itoa(k.requests)
	requests := func(protocol string) kind {
		argv := func(to end) []string { return n.traffic(protocol, "-n", count, to.port()) }

		return kind{protocol, argv, func(t *testing.T, client *background, from, to end) int {
			client.answered(t, k.requests, from, to)
			return 0
		}}
	}
	echoes := func(name string, flags ...string) kind {
		argv := func(to end) []string { return pings(to, k.requests, flags...) }

		return kind{name, argv, func(t *testing.T, client *background, from, to end) int {
			return client.echoed(t, k.requests, from, to)
		}}
	}
	// The client "udp" repeats a request without a reply. This one does not.
	datagrams := kind{"datagrams", func(to end) []string {
		hold := n.traffic("hold", to.port(), "-udp", "-timeout", "200ms")
		return append(hold, "-duration", "100ms", "-interval", "5ms")
	}, func(t *testing.T, client *background, from, to end) int { return client.delivered(t, from, to) }}

	list := []kind{requests("tcp"), echoes("pings")}

	if k.all {
		whole := strconv.Itoa(lab.VMMTU - 28) // without the headers of IPv4 and ICMP

		list = append(list, requests("udp"), datagrams, echoes("fragments", "-s", "4000"))
		list = append(list, echoes("whole packets", "-M", "do", "-s", whole))
	}

	return list
}

// pings returns a command that sends echo requests at once. It waits for the missing replies at least as
// long as the interval, which -W would not achieve once a reply has arrived.
func pings(to end, count int, argv ...string) []string {
	ping := []string{"ping", "-n", "-q", "-i", "2", "-l", strconv.Itoa(count), "-c", strconv.Itoa(count)}
	return append(append(ping, argv...), to.address.String())
}

// answered waits for requests, and fails the test unless the server has answered each and has seen the
// client's address.
func (b *background) answered(t *testing.T, count int, from, to end) {
	t.Helper()

	out := b.wait(t)
	if replies := strings.Count(out, "\n"); replies != count {
		t.Errorf("%s from %s to %s: %d replies to %d requests", b.name, from.name, to.name, replies, count)
	}

	for line := range strings.Lines(out) {
		name, client, _ := strings.Cut(strings.TrimSpace(line), " ")

		seen, err := netip.ParseAddrPort(client)
		if err != nil || name != to.name || seen.Addr().Unmap() != from.address {
			t.Errorf("%s from %s to %s: reply %q, want the name of the server and the address %s", b.name,
				from.name, to.name, line, from.address)
		}
	}
}

// delivered waits for a client of "traffic hold" and returns the number of missing replies. It fails the
// test if a reply arrived twice.
func (b *background) delivered(t *testing.T, from, to end) (lost int) {
	t.Helper()

	var report traffic.HoldReport

	err := json.Unmarshal([]byte(b.wait(t)), &report)
	if err != nil || report.Sent == 0 || report.Lost < 0 {
		t.Errorf("%s from %s to %s: %v: %+v", b.name, from.name, to.name, err, report)
	}

	if report.Lost > 0 {
		t.Logf("%s from %s to %s: %d of %d lost", b.name, from.name, to.name, report.Lost, report.Sent)
	}

	return report.Lost
}

var pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received,`)

// echoed waits for pings and returns the number of missing replies. It fails the test if a reply arrived
// twice.
func (b *background) echoed(t *testing.T, count int, from, to end) (lost int) {
	t.Helper()
	<-b.done // its exit status covers missing replies, too
	out := b.out.String()

	m := pingSummary.FindStringSubmatch(out)
	if m == nil || m[1] != strconv.Itoa(count) || strings.Contains(out, "duplicates") {
		t.Errorf("%s from %s to %s: want %d packets and no duplicates: %v: %s%s", b.name, from.name, to.name,
			count, b.failed, out, b.err.String())

		return 0
	}

	if lost = count - int(number(t, m[2])); lost > 0 {
		t.Logf("%s from %s to %s: %d of %d lost", b.name, from.name, to.name, lost, count)
	}

	return lost
}

// testNestedCounters: each packet counts once, at each VM that it passes.
func testNestedCounters(t *testing.T, n *nested) {
	const count = 50

	vms := []*lab.VM{n.VM(1), n.VM(2)}
	n.settle(t, vms...)

	a, c := n.podEnd("a"), n.podEnd("c")
	own, other := end{"vm1", "vm1", vms[0].IP4}, end{"vm2", "vm2", vms[1].IP4}
	both := map[string]uint64{"tx out": count, "rx in": count}

	none := map[string]uint64{}
	for _, test := range []struct {
		name     string
		from, to end
		want     []map[string]uint64 // of vm1 and vm2
	}{
		{"pod to pod on another VM", a, c, []map[string]uint64{both, both}},
		{"pod to its own VM", a, own, []map[string]uint64{{"tx host": count}, none}},
		{"own VM to pod", own, a, []map[string]uint64{{"tx host": count}, none}},
		{"pod to another VM", a, other, []map[string]uint64{both, none}},
		{"another VM to pod", other, a, []map[string]uint64{both, none}},
	} {
		n.execute(t, test.from.on, pings(test.to, 1)...)
		within(t, test.name, func() error {
			n.settle(t, vms...)
			dropped := n.dropped(t)
			lost := 0

			got := n.moved(t, func() {
				client := n.run(t, test.name, test.from.on, pings(test.to, count)...)
				lost = client.echoed(t, count, test.from, test.to)
				n.settle(t, vms...)
			}, vms...)
			if n.dropped(t) > dropped {
				return fmt.Errorf("the hypervisors drop packets; %d pings lost", lost)
			}

			n.explained(t, test.name, lost, dropped)

			for i, want := range test.want {
				if !maps.Equal(got[i], want) {
					t.Errorf("%s: %d pings moved %v on %s, want %v", test.name, count, got[i], vms[i].Name, want)
				}
			}

			return nil
		})
	}

	t.Run("metrics", func(t *testing.T) {
		for key, packets := range counters(t, vms[0]) {
			direction, reason, _ := strings.Cut(key, " ")

			name := fmt.Sprintf("ovnkube_underlay_packets_total{direction=%q,reason=%q}", direction, reason)
			if got := n.metric(t, vms[0], name); got != packets {
				t.Errorf("%s is %d, the counter %d", name, got, packets)
			}
		}
	})
}

// settle waits until the VMs' counters are stable.
func (n *nested) settle(t *testing.T, vms ...*lab.VM) {
	t.Helper()

	read := func() (all []map[string]uint64) {
		for _, vm := range vms {
			all = append(all, counters(t, vm))
		}

		return all
	}
	last := read()

	within(t, "stable counters", func() error {
		time.Sleep(100 * time.Millisecond)

		now := read()
		if !slices.EqualFunc(now, last, maps.Equal) {
			last = now
			return fmt.Errorf("they move: %v", now)
		}

		return nil
	})
}
