package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// way is a kind of traffic through node1.
type way struct {
	name, from string
	to         func(v6 bool) netip.Addr
	port       uint16 // 0: ping
	host       bool   // traffic of the node itself, which loses no packets in layout direct, whatever happens to OVS or the agent
	tunnel     bool   // some connections, or all, go through the tunnel to node2
}

// ways lists one of each kind: traffic of the host, North-South by SNAT, NodePort and load balancer
// address, and the overlay.
func (c *Cluster) ways() []way {
	return []way{
		{name: "outside to host", from: "ext", to: c.node(1), port: sshPort, host: true},
		{name: "host to outside", from: "node1", to: outside, port: outsidePort, host: true},
		{name: "host to host", from: "node2", to: c.node(1), port: hostPort, host: true},
		{name: "pod to outside", from: host("a"), to: outside, port: outsidePort},
		{name: "outside to NodePort", from: "ext", to: c.gateway(1), port: nodePort, tunnel: true},
		{name: "outside to local NodePort", from: "ext", to: c.gateway(1), port: localNodePort},
		{name: "outside to announced address", from: "ext", to: vip, port: servicePort, tunnel: true},
		{name: "pod to pod, one node", from: host("a"), to: c.pod("b"), port: podPort},
		{name: "pod to pod, across nodes", from: host("a"), to: c.pod("c"), port: podPort, tunnel: true},
		{name: "pod to pod, the other way", from: host("c"), to: c.pod("a"), port: podPort, tunnel: true},
		{name: "host to pod", from: "node1", to: c.pod("a"), port: podPort},
		{name: "host to cluster IP", from: "node1", to: c.cluster("web"), port: servicePort, tunnel: true},
	}
}

// echoes lists the ways for pings.
func (c *Cluster) echoes() []way {
	return []way{
		{name: "outside to host", from: "ext", to: c.node(1), host: true},
		{name: "host to outside", from: "node1", to: outside, host: true},
		{name: "pod to outside", from: host("a"), to: outside},
		{name: "pod to pod, across nodes", from: host("a"), to: c.pod("c")},
	}
}

// load is a set of connections of every kind, held while the node is changed.
type load struct {
	held     []*background
	steps    []step
	noTunnel bool // at present no packet passes the tunnel between the nodes
}

// step is a change during the load.
type step struct {
	name       string
	begin, end time.Time
}

// startLoad opens the connections.
func (c *Cluster) startLoad(t *testing.T) *load {
	t.Helper()

	l := &load{}

	c.reachable(t, c.ways()...)

	for _, v6 := range []bool{false, true} {
		for _, w := range c.ways() {
			name := w.name + " " + Result{V6: v6}.Family()
			l.held = append(l.held, c.hold(t, name, w.from, port(w.to(v6), w.port), time.Hour, "-interval", "200ms", "-timeout", "1m"))
		}
	}

	time.Sleep(2 * time.Second) // time to establish them
	l.alive(t)

	return l
}

// reachable waits until new connections succeed, also to the second endpoint of a service.
func (c *Cluster) reachable(t *testing.T, ways ...way) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		for _, w := range ways {
			within(t, "new connections, "+w.name, func() error { return c.ask(t, w.from, port(w.to(v6), w.port), "-n", "4") })
		}
	}
}

// alive fails the test if a connection has ended.
func (l *load) alive(t *testing.T) {
	t.Helper()

	for _, b := range l.held {
		if b.ended() {
			t.Errorf("%s: ended: %v: %s%s", b.name, b.failed, b.out.String(), b.err.String())
		}
	}
}

// during makes a change under the load, with pings. Afterwards every kind of connection must be
// possible. It returns the lost pings by way.
func (l *load) during(t *testing.T, c *Cluster, name string, change func()) []lostPings {
	t.Helper()

	s := step{name: name, begin: time.Now()}

	type pinging struct {
		*background
		host bool
	}

	var pings []pinging

	for _, v6 := range []bool{false, true} {
		for _, w := range c.echoes() {
			interval := "0.1"
			if w.host {
				interval = "0.02"
			}

			b := c.run(t, w.name+" "+Result{V6: v6}.Family(), w.from, "ping", "-n", "-i", interval, w.to(v6).String())
			pings = append(pings, pinging{b, w.host})
		}
	}

	time.Sleep(time.Second)
	change()

	changed := time.Since(s.begin)

	for _, w := range c.ways()[:8] { // the tunnel takes longer to recover
		if !w.tunnel || !l.noTunnel {
			c.reachable(t, w)
		}
	}

	time.Sleep(time.Second)

	var out []lostPings

	for _, p := range pings {
		p.stop(t)
		out = append(out, lostOf(p.name, p.host, p.wait(t)))
	}

	s.end = time.Now()
	l.steps = append(l.steps, s)
	l.alive(t)
	t.Logf("%s: changed in %s; pings: %v", name, changed.Round(time.Millisecond), out)

	return out
}

// lostPings counts the unanswered echo requests of one way.
type lostPings struct {
	name       string
	host       bool
	sent, lost int
}

func (l lostPings) String() string { return fmt.Sprintf("%s %d of %d lost", l.name, l.lost, l.sent) }

var echoSeq = regexp.MustCompile(`icmp_seq=(\d+)`)

// lostOf parses the output of ping. It ignores the last request, which may have had no time for a
// reply.
func lostOf(name string, isHost bool, out string) lostPings {
	answered := map[string]bool{}

	for line := range strings.Lines(out) {
		if m := echoSeq.FindStringSubmatch(line); m != nil && strings.Contains(line, "time=") {
			answered[m[1]] = true
		}
	}

	_, statistics, _ := strings.Cut(out, "statistics ---\n")
	number, _, _ := strings.Cut(statistics, " packets transmitted")
	sent, _ := strconv.Atoi(number)

	l := lostPings{name: name, host: isHost, sent: sent, lost: sent - len(answered)}
	if l.lost > 0 && !answered[number] {
		l.lost, l.sent = l.lost-1, sent-1
	}

	return l
}

// none fails the test for each lost ping of the host, or with all, for each lost ping.
func none(t *testing.T, pings []lostPings, all bool) {
	t.Helper()

	for _, p := range pings {
		if (p.host || all) && (p.lost != 0 || p.sent == 0) {
			t.Errorf("pings: %s", p)
		}
	}
}

// end closes the connections, fails the test for each one with losses, and logs the stalls of each
// step.
func (l *load) end(t *testing.T) {
	t.Helper()

	for _, b := range l.held {
		b.stop(t)
	}

	stalls := map[string][]string{}

	for _, b := range l.held {
		for _, stall := range b.held(t).Stalls {
			at := l.at(stall)
			stalls[at] = append(stalls[at], fmt.Sprintf("%s %d ms", b.name, stall.MS))
		}
	}

	for _, s := range append(l.steps, step{}) {
		if len(stalls[s.name]) > 0 {
			t.Logf("stalls in %q: %s", s.name, strings.Join(stalls[s.name], ", "))
		}
	}
}

// at returns the step during which a connection stalled, or "".
func (l *load) at(stall traffic.Stall) string {
	begin := stall.End.Add(-time.Duration(stall.MS) * time.Millisecond)
	for _, s := range l.steps {
		if begin.Before(s.end) && stall.End.After(s.begin) {
			return s.name
		}
	}

	return ""
}
