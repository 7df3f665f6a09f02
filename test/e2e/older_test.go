package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// Ports of testOlderClients, and its cluster IPs.
const (
	olderNodePort = 30086
	olderHostPort = 8099
)

func olderIP(v6 bool) netip.Addr {
	return choose(v6, netip.MustParseAddr("10.96.77.7"), netip.MustParseAddr("fd00:10:96::7707"))
}

// Addresses of the Service's load balancer. Until then, the outside host has the second one.
var olderVIP, olderServer = kindVIP(30), kindVIP(31)

// olderClient sends before its frontend exists.
type olderClient struct {
	*background
	by string // the server
	on string
	to netip.AddrPort
}

// older starts a UDP client that sends every 100 ms from one port until it gets an answer.
func (c *Cluster) older(t *testing.T, on, by string, to netip.AddrPort) olderClient {
	t.Helper()

	name := fmt.Sprintf("%s to %s", on, to)

	return olderClient{c.run(t, name, on, c.traffic("await", to.String(), "-timeout", (20*time.Second*patience()).String())...), by, on, to}
}

// waitServed checks that the client was answered within 2 s after the frontend's creation.
func (o olderClient) waitServed(t *testing.T, created time.Time) {
	t.Helper()

	var r traffic.AwaitReport
	if err := json.Unmarshal([]byte(o.wait(t)), &r); err != nil {
		t.Errorf("%s: %v", o.name, err)
		return
	}

	if by, _, _ := strings.Cut(r.Answer, " "); by != o.by {
		t.Errorf("%s: answered by %q, want %s", o.name, r.Answer, o.by)
		return
	}

	if late := r.At.Sub(created); late > serviceTimeout() {
		t.Errorf("%s: answered %v after the frontend's creation", o.name, late)
	} else {
		t.Logf("%s: answered after %v, %d unanswered, %d connects", o.name, late.Round(time.Millisecond), r.Sent, r.Connects)
	}

	if r.Sent == 0 {
		t.Errorf("%s: its first request was answered", o.name)
	}
}

// serviceTimeout is the time from the creation of a frontend until an older client is answered. In
// the emulated machine, the controller and OVN alone take a quarter of a minute.
func serviceTimeout() time.Duration {
	if patience() > 1 {
		return time.Minute
	}

	return 2 * time.Second
}

// testOlderClients: UDP clients that keep their ports are served although they began to send before
// their frontend existed: a Service's, or a pod's host port. So is a TCP client whose first SYN was
// earlier. Connections stay that were established to the address of the frontend, and connections
// to other ports.
func testOlderClients(t *testing.T, c *Cluster) {
	c.isHealthy(t)
	unharmed := c.otherServer(t)

	var (
		clients, ofPod []olderClient
		syns           []*background
	)

	for _, v6 := range []bool{false, true} {
		vip, own := port(olderVIP(v6), servicePort), c.node(1)(v6)

		inside := port(olderIP(v6), servicePort)
		for _, o := range []struct {
			on string
			to netip.AddrPort
		}{
			{host("a"), inside},
			{"node1", inside},
			{host("a"), port(own, olderNodePort)},
			{"node1", port(own, olderNodePort)},
			{"ext", port(own, olderNodePort)},
			{host("a"), vip},
			{"ext", vip},
		} {
			if o.on == "ext" && o.to == vip {
				c.execute(t, "ext", "ip", "route", "replace", vip.Addr().String(), "via", c.gateway(1)(v6).String())
			}

			clients = append(clients, c.older(t, o.on, "c", o.to))
		}

		for _, on := range []string{host("a"), host("c"), "node1", "ext"} {
			ofPod = append(ofPod, c.older(t, on, "late", port(own, olderHostPort)))
		}
	}

	for _, o := range slices.Concat(clients, ofPod) {
		c.tracked(t, o)
	}

	for _, v6 := range []bool{false, true} {
		to := port(olderIP(v6), servicePort)
		syns = append(syns, c.run(t, "TCP to "+to.String(), host("a"), c.traffic("tcp", to.String(), "-timeout", "60s")...))
		within(t, "a SYN without an answer", func() error {
			return c.entry(t, "node1", "tcp", fmt.Sprintf("dst=%s,", to.Addr()), "state_orig=SYN_SENT")
		})
	}

	created := time.Now()

	c.tempService(t, lab.ServiceSpec{
		Name: "older", Type: corev1.ServiceTypeLoadBalancer, Ports: servicePorts(podPort, olderNodePort), Pods: []*lab.Pod{c.Pods["c"]},
		Ingress: []netip.Addr{olderVIP(false), olderVIP(true), olderServer(false), olderServer(true)},
		Change: func(s *corev1.ServiceSpec) {
			s.ClusterIP = olderIP(false).String()
			s.ClusterIPs = []string{olderIP(false).String(), olderIP(true).String()}
		},
	})

	for _, o := range clients {
		o.waitServed(t, created)
	}

	for _, s := range syns {
		<-s.done
		// The lab creates a Service before its endpoints. In the emulated machine, OVN then refuses clients
		// for a while, which shows as well that the Service gets the connection.
		refusedFirst := patience() > 1 && s.failed != nil && strings.Contains(s.err.String(), "connection refused")
		if out := s.out.String(); !strings.HasPrefix(out, "c ") && !refusedFirst {
			t.Errorf("%s: answered by %q, want c: %s", s.name, out, s.err.String())
		}
	}

	created = c.addHostPort(t)
	for _, o := range ofPod {
		o.waitServed(t, created)
	}

	unharmed(t)
	c.isHealthy(t)
}

// addHostPort adds pod late with a host port on node1, and returns when it serves.
func (c *Cluster) addHostPort(t *testing.T) time.Time {
	t.Helper()

	pod, err := c.AddPod(t.Context(), lab.PodSpec{Namespace: "default", Name: "late", Node: "node1", Ports: []corev1.ContainerPort{
		{HostPort: olderHostPort, ContainerPort: podPort, Protocol: corev1.ProtocolUDP},
	}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	})

	if err := c.serve(t.Context(), host("late"), "late-"+pod.UID[:8], podPort); err != nil {
		t.Fatal(err)
	}

	return time.Now()
}

// otherServer connects pod a to a server outside, which has the Service's coming address: by TCP to
// the Service's port, and by UDP to another one. The result checks that no packet was lost since
// then, and that the entries are the same.
func (c *Cluster) otherServer(t *testing.T) (check func(*testing.T)) {
	t.Helper()

	const tcp, udp = servicePort, servicePort + 1
	if err := c.serveAs(t.Context(), "ext", "serve-older", "-name", "ext", "-tcp", fmt.Sprintf(":%d", tcp), "-udp", fmt.Sprintf(":%d", udp)); err != nil {
		t.Fatal(err)
	}

	var held []*background

	for _, v6 := range []bool{false, true} {
		a := netip.PrefixFrom(olderServer(v6), olderServer(v6).BitLen()).String()
		c.execute(t, "ext", "ip", "addr", "replace", a, "dev", "lo")
		t.Cleanup(func() {
			if out, err := c.Exec(context.WithoutCancel(t.Context()), "ext", "ip", "addr", "del", a, "dev", "lo"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		held = append(held,
			c.hold(t, "TCP connection to "+a, host("a"), port(olderServer(v6), tcp), time.Hour),
			c.hold(t, "UDP to another port of "+a, host("a"), port(olderServer(v6), udp), time.Hour, "-udp"))
	}

	before := c.entries(t)

	return func(t *testing.T) {
		if now := c.entries(t); !slices.Equal(now, before) {
			t.Errorf("entries of connections that stay:\n%q, want\n%q", now, before)
		}

		for _, h := range held {
			h.stop(t)
			h.held(t)
		}
	}
}

// entries returns the entries of the other server's connections on node1, when both directions are
// established, without what changes with each packet.
func (c *Cluster) entries(t *testing.T) []string {
	t.Helper()

	volatile := regexp.MustCompile(`,(status|timeout|packets|bytes|start|wscale_\w+|flags_\w+)=[^,)]*`)

	var out []string

	within(t, "the entries of the other server", func() error {
		out = nil

		for line := range strings.Lines(c.trackedBy(t, "node1")) {
			is := strings.Contains(line, "orig=(src="+c.pod("a")(false).String()) || strings.Contains(line, "orig=(src="+c.pod("a")(true).String())
			if to := olderServer(strings.Contains(line, ":")); is && strings.Contains(line, "dst="+to.String()+",") && !strings.Contains(line, "=SYN") {
				out = append(out, volatile.ReplaceAllString(strings.TrimSpace(line), ""))
			}
		}

		if len(out) < 3*4 { // in three zones each
			return fmt.Errorf("%q, want those of 4 connections in 3 zones", out)
		}

		slices.Sort(out)

		return nil
	})

	return out
}

// tracked waits until a client's packets have entries, if they pass OVN before the host's own
// stack.
func (c *Cluster) tracked(t *testing.T, o olderClient) {
	t.Helper()

	node := "node1"

	switch {
	case o.on == host("c"):
		node = "node2"
	case !strings.HasPrefix(o.on, "pod:"):
		return
	}

	within(t, o.name+": an entry", func() error {
		return c.entry(t, node, "udp", fmt.Sprintf("dst=%s,", o.to.Addr()), fmt.Sprintf("dport=%d)", o.to.Port()))
	})
}

// entry returns nil if the node tracks a connection with all these parts.
func (c *Cluster) entry(t *testing.T, node string, parts ...string) error {
	t.Helper()

	for line := range strings.Lines(c.trackedBy(t, node)) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return nil
		}
	}

	return fmt.Errorf("none with %q", parts)
}
