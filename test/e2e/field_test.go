package e2e

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

type fieldTest struct {
	name string
	skip func(*Cluster) string // why it cannot run here; "" if it can
	run  func(*testing.T, *Cluster)
}

// fieldTests are what went wrong elsewhere, and must not here: the list "What
// must be right" of the design notes, each by its name there.
var fieldTests = []fieldTest{
	{name: "a pod binds 22, 6081, 10250 and sweeps a peer's ports", run: testSweep},
	{name: "ICMP port unreachable", run: testUnreachable},
	{name: "ping of 4000 bytes", run: testLarge},
	{name: "fragments, the last one first", run: testEarlyFragments},
	{name: "IPv6 with extension headers", run: testExtensions},
	{name: "IPv6 duplicate address detection", run: testDAD},
	{name: "a router advertises itself", run: testAdvertisement},
	{name: "GRE from a pod", skip: needsKernelConntrack, run: testGRE},
	{name: "SCTP", skip: needsSCTP, run: testSCTP},
	{name: "a host process that listens inside the SNAT range", run: testListener},
	{name: "jumbo uplink", run: testJumbo},
	{name: "PMTUD to a NodePort and an announced address", run: testPMTUD},
	{name: "checksum offload on and off", skip: needsKernelConntrack, run: testOffload},
	{name: "bandwidth", run: testBandwidth},
	{name: "an idle hour", run: testIdle},
	{name: "the remote speaks first", run: testRemoteFirst},
	{name: "a load balancer's address on the host", skip: needsSharedNIC, run: testAnnounced},
	{name: "a UDP service whose endpoint goes away", run: testEndpointGone},
	{name: "a container of the host's reaches services", skip: needsSharedNIC, run: testContainer},
	{name: "a host behind a local NodePort", run: testLocalHost},
	{name: "a load balancer's source ranges", run: testSources},
	{name: "SIGKILL at any point of start-up", run: testKills},
	{name: "one answer to an ARP request, with 70 gateway routers", run: testManyRouters},
}

func testField(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} { // alone, these tests come before OVN is done
		within(t, "pod to outside", func() error { return c.ask(t, host("a"), port(outside(v6), outsidePort)) })
		within(t, "outside to NodePort", func() error { return c.ask(t, "ext", port(c.gateway(1)(v6), nodePort)) })
		within(t, "outside to an announced address", func() error { return c.ask(t, "ext", port(vip(v6), servicePort)) })
	}
	for _, f := range fieldTests {
		t.Run(f.name, func(t *testing.T) {
			if f.skip != nil {
				if reason := f.skip(c); reason != "" {
					t.Skip(reason)
				}
			}
			f.run(t, c)
		})
	}
}

// needsKernelConntrack: OVS's own connection tracker knows neither protocols
// without ports nor, on AF_PACKET, offloads; this machine's datapath says which
// one it is.
func needsKernelConntrack(c *Cluster) string {
	if c.Datapath() == "system" {
		return ""
	}
	return "datapath " + c.Datapath() + ": its conntrack tracks TCP, UDP and ICMP alone, and it computes every checksum itself"
}

// needsSharedNIC: host and OVN meet at the uplink.
func needsSharedNIC(c *Cluster) string {
	if c.layout != dedicated {
		return ""
	}
	return "layout dedicated: the host has no part in OVN's NIC, and OVN none in the host's"
}

func bothFamilies(t *testing.T, run func(t *testing.T, v6 bool)) {
	t.Helper()
	for _, v6 := range []bool{false, true} {
		t.Run(Result{V6: v6}.Family(), func(t *testing.T) { run(t, v6) })
	}
}

// answers makes a request of the traffic tool and checks who answered.
func (c *Cluster) answers(t *testing.T, on, want, command string, to netip.AddrPort, args ...string) {
	t.Helper()
	out, err := c.Exec(t.Context(), on, append(c.traffic(command, to.String()), args...)...)
	if err != nil {
		t.Errorf("%s from %s to %s: %v: %s", command, on, to, err, out)
		return
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !strings.Contains(","+want+",", ","+name+",") {
		t.Errorf("%s from %s to %s: answered by %q, want one of %s", command, on, to, name, want)
	}
}

// execute runs a command that must succeed.
func (c *Cluster) execute(t *testing.T, on string, argv ...string) string {
	t.Helper()
	out, err := c.Exec(t.Context(), on, argv...)
	if err != nil {
		t.Fatalf("%v on %s: %v: %s", argv, on, err, out)
	}
	return string(out)
}

// testSweep: a pod that takes a port of the host's as its source and meets
// every port of a peer cuts neither a live nor a new connection of that peer.
func testSweep(t *testing.T, c *Cluster) {
	const kubelet = 10250
	if err := c.serve(t.Context(), "node1", "node1", kubelet); err != nil {
		t.Fatal(err)
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		for i, bound := range []uint16{sshPort, genevePort, kubelet} {
			target := port(c.node(1)(v6), bound)
			if bound == genevePort {
				target = port(c.node(1)(v6), sshPort) // TCP 6081 is nobody's, and Geneve has no connections
			}
			live := c.hold(t, "live connection", "ext", target, time.Hour, "-sport", strconv.Itoa(900+i)) // an ended one lingers
			within(t, "the live connection", func() error {
				filter := []string{"ss", "-Htn", "state", "established", "sport", "=", ":" + strconv.Itoa(900+i), "dst", target.String()}
				if strings.TrimSpace(c.execute(t, "ext", filter...)) == "" {
					return errors.New("not yet established")
				}
				return nil
			})
			out, err := c.Exec(t.Context(), host("a"), c.traffic("sweep", port(outside(v6), 0).String(), "-sport", strconv.Itoa(int(bound)), "-ports", "1-1023", "-timeout", "3s")...)
			if err != nil {
				t.Fatal(err)
			}
			var swept traffic.SweepReport
			if err := json.Unmarshal(out, &swept); err != nil || swept.Connected == 0 || swept.Connected+swept.Refused != swept.Attempts {
				t.Errorf("the pod's own connections from %d: %+v, %v", bound, swept, err)
			}
			// From a port that the pod has just met, and anew.
			for sport := 1000; sport < 1020; sport++ {
				if err := c.ask(t, "ext", target, "-sport", strconv.Itoa(sport)); err != nil {
					t.Errorf("new connection from port %d to %s: %v", sport, target, err)
				}
			}
			live.stop(t)
			live.held(t)
		}
	})
}

// testUnreachable: an ICMP error reaches the side whose packet it quotes.
func testUnreachable(t *testing.T, c *Cluster) {
	const closed = 7999
	bothFamilies(t, func(t *testing.T, v6 bool) {
		for _, way := range []struct {
			from string
			to   netip.Addr
		}{{host("a"), outside(v6)}, {"node1", outside(v6)}, {"ext", c.node(1)(v6)}} {
			out, err := c.Exec(t.Context(), way.from, c.traffic("udp", port(way.to, closed).String(), "-timeout", "5s")...)
			if err == nil || !strings.Contains(err.Error()+string(out), "connection refused") {
				t.Errorf("UDP from %s to the closed port of %s: %v, want connection refused", way.from, way.to, err)
			}
		}
	})
}

// testEarlyFragments: a datagram whose last fragment overtakes the first comes
// through, to the host and to OVN. OVS's own connection tracker leaves fragments
// as they are, and a later one has no port to find a load balancer by.
func testEarlyFragments(t *testing.T, c *Cluster) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		c.answers(t, "ext", "node1", "frags", port(c.node(1)(v6), hostPort), "-n", "5")
		if needsKernelConntrack(c) == "" {
			c.answers(t, "ext", "a,c", "frags", port(c.gateway(1)(v6), nodePort), "-n", "5")
		}
		c.answers(t, host("a"), "ext", "frags", port(outside(v6), outsidePort), "-n", "5")
	})
}

func testExtensions(t *testing.T, c *Cluster) {
	c.answers(t, "ext", "node1", "udp", port(c.node(1)(true), hostPort), "-dstopts", "-n", "5")
	c.answers(t, "node1", "ext", "udp", port(outside(true), outsidePort), "-dstopts", "-n", "5")
	c.answers(t, "ext", "a,c", "udp", port(c.gateway(1)(true), nodePort), "-dstopts", "-n", "5")
	c.answers(t, host("a"), "ext", "udp", port(outside(true), outsidePort), "-dstopts", "-n", "5")
}

// testGRE: a protocol without ports, of a pod's and of the host's, with the same peer.
func testGRE(t *testing.T, c *Cluster) {
	const gre, other = 47, 253 // 253: for experiments (RFC 3692)
	for _, proto := range []int{gre, other} {
		if _, err := c.Spawn("ext", "serve-proto-"+strconv.Itoa(proto), c.traffic("serve", "-name", "ext", "-proto", strconv.Itoa(proto))...); err != nil {
			t.Fatal(err)
		}
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		for from, proto := range map[string]int{host("a"): gre, "node1": other} {
			out, err := c.Exec(t.Context(), from, c.traffic("proto", outside(v6).String(), "-proto", strconv.Itoa(proto), "-n", "5")...)
			if err != nil || strings.Count(string(out), "ext ") != 5 {
				t.Errorf("protocol %d from %s: %v: %s", proto, from, err, out)
			}
		}
	})
}

// testListener: a process of the host that listens inside OVN's range is
// reached at once, over TCP and UDP, and pods go on. Flows know of it when the agent
// has next looked at the host's sockets.
func testListener(t *testing.T, c *Cluster) {
	const inside = 50000
	if err := c.serve(t.Context(), "node1", "node1", inside); err != nil {
		t.Fatal(err)
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		to := port(c.node(1)(v6), inside)
		if c.flows {
			within(t, "a flow for the listener", func() error { return c.ask(t, "ext", to) })
		}
		live := c.hold(t, "connection inside the range", "ext", to, 5*time.Second)
		pod := c.hold(t, "pod to outside", host("a"), port(outside(v6), outsidePort), 5*time.Second)
		c.answers(t, "ext", "node1", "tcp", to, "-n", "20")
		c.answers(t, "ext", "node1", "udp", to, "-n", "20")
		c.answers(t, host("a"), "ext", "udp", port(outside(v6), outsidePort), "-n", "20")
		live.held(t)
		pod.held(t)
	})
}
