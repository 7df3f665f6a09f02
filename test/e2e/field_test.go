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

// inFull is why a test is skipped with -short.
const inFull = "mostly waits: .ci/full has it, parts native and vm"

type fieldTest struct {
	name string
	long bool                  // skipped with -short
	skip func(*Cluster) string // why it cannot run here, or ""
	run  func(*testing.T, *Cluster)
}

// fieldTests covers faults known from other products: the list "What must be right" of the design
// notes, with the names used there.
var fieldTests = []fieldTest{
	{name: "a pod binds 22, 6081, 10250 and sweeps a peer's ports", run: testSweep},
	{name: "a pod connects again and again from one source port", long: true, run: testSourcePort},
	{name: "ICMP port unreachable", run: testUnreachable},
	{name: "ping of 4000 bytes", run: testLarge},
	{name: "fragments, the last one first", run: testEarlyFragments},
	{name: "IPv6 with extension headers", run: testExtensions},
	{name: "IPv6 duplicate address detection", run: testDAD},
	{name: "a router advertises itself", long: true, run: testAdvertisement},
	{name: "a virtual IP, and the node's address away for seconds", long: true, skip: needsSharedNIC, run: testVirtualIP},
	{name: "the node's address away for long", long: true, skip: needsSharedNIC, run: testLostAddress},
	{name: "the next hop moves", skip: needsRouter, run: testNextHopMoves},
	{name: "default routes", skip: needsRouter, run: testDefaultRoutes},
	{name: "the next hop is silent", long: true, skip: needsRouter, run: testNextHopSilent},
	{name: "a peer of the uplink's network moves", long: true, skip: needsRouter, run: testPeerMoves},
	{name: "pods come and go", run: testChurn},
	{name: "flushed routes", skip: needsSharedNIC, run: testFlushedRoutes},
	{name: "another system-id", run: testSystemID},
	{name: "Open vSwitch is installed again", run: testReinstalled},
	{name: "a system-id that another node has", long: true, run: testClonedSystemID},
	{name: "the chassis is lost", long: true, run: testChassisLost},
	{name: "a cloud sets NetworkUnavailable", run: testNetworkUnavailable},
	{name: "GRE from a pod", skip: needsKernelConntrack, run: testGRE},
	{name: "SCTP", skip: needsSCTP, run: testSCTP},
	{name: "a host process that listens inside the SNAT range", long: true, run: testListener},
	{name: "jumbo uplink", run: testJumbo},
	{name: "PMTUD to a NodePort and an announced address", run: testPMTUD},
	{name: "checksum offload on and off", skip: needsKernelConntrack, run: testOffload},
	{name: "bandwidth", long: true, run: testBandwidth},
	{name: "an idle hour", long: true, run: testIdle},
	{name: "the remote speaks first", long: true, run: testRemoteFirst},
	{name: "a load balancer's address on the host", skip: needsSharedNIC, run: testAnnounced},
	{name: "a UDP service whose endpoint goes away", run: testEndpointGone},
	{name: "clients older than their Service", skip: needsSharedNIC, run: testOlderClients},
	{name: "a container of the host's reaches services", skip: needsSharedNIC, run: testContainer},
	{name: "a host behind a local NodePort", run: testLocalHost},
	{name: "a load balancer's source ranges", long: true, run: testSources},
	{name: "Services at a node's address", skip: needsSharedNIC, run: testServiceAtNode},
	{name: "the host's socket to a removed endpoint", long: true, run: testStrangersSocket},
	{name: "an endpoint that is not on its node", long: true, run: testFalseEndpoint},
	{name: "a Service at the API server's address", run: testServiceAtAPIServer},
	{name: "ports of OVN's databases", long: true, skip: needsSharedNIC, run: testDatabasePorts},
	{name: "an endpoint at another node's tunnel port", long: true, run: testTunnelEndpoint},
	{name: "a forged slice of the control plane", run: testForgedSlice},
	{name: "a lost SYN", run: testLostSYN},
	{name: "session affinity", long: true, run: testSessionAffinity},
	{name: "session affinity through restarts", long: true, run: testAffinityRestarts},
	{name: "a policy with many port ranges", run: testManyPortRanges},
	{name: "a Service with 900 endpoints", run: testLargeService},
	{name: "a namespace with many frontends", long: true, run: testManyFrontends},
	{name: "SIGKILL at any point of start-up", long: true, run: testKills},
	{name: "etcd is restored", long: true, run: testRestoredEtcd},
	{name: "one answer to an ARP request, with 70 gateway routers", long: true, run: testManyRouters},
}

func testField(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} { // run alone, these tests may start before OVN is ready
		within(t, "pod to outside", func() error { return c.ask(t, host("a"), port(outside(v6), outsidePort)) })
		within(t, "outside to NodePort", func() error { return c.ask(t, "ext", port(c.gateway(1)(v6), nodePort)) })
		within(t, "outside to an announced address", func() error { return c.ask(t, "ext", port(vip(v6), servicePort)) })
	}

	for _, f := range fieldTests {
		t.Run(f.name, func(t *testing.T) {
			if f.long && testing.Short() {
				t.Skip(inFull)
			}

			if f.skip != nil {
				if reason := f.skip(c); reason != "" {
					t.Skip(reason)
				}
			}

			f.run(t, c)
		})
	}
}

// needsKernelConntrack: OVS's own connection tracker supports neither protocols without ports nor,
// on AF_PACKET, offloads.
func needsKernelConntrack(c *Cluster) string {
	if c.Datapath() == "system" {
		return ""
	}

	return "datapath " + c.Datapath() + ": its conntrack tracks TCP, UDP and ICMP alone, and it computes every checksum itself"
}

// needsSharedNIC: host and OVN share the uplink.
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

// answers sends requests by the traffic tool and checks the responding server.
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

// testSweep: a pod that uses a port of the host as its source port, and connects to every port of a
// peer, cuts neither live nor new connections of that peer.
func testSweep(t *testing.T, c *Cluster) {
	const kubelet = 10250
	if err := c.serve(t.Context(), "node1", "node1", kubelet); err != nil {
		t.Fatal(err)
	}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		for i, bound := range []uint16{sshPort, genevePort, kubelet} {
			target := port(c.node(1)(v6), bound)
			if bound == genevePort {
				target = port(c.node(1)(v6), sshPort) // no server uses TCP 6081, and Geneve has no connections
			}

			live := c.hold(t, "live connection", "ext", target, time.Hour, "-sport", strconv.Itoa(900+i)) // a closed one lingers
			within(t, "the live connection", func() error {
				filter := []string{"ss", "-Htn", "state", "established", "sport", "=", ":" + strconv.Itoa(900+i), "dst", target.String()}
				if strings.TrimSpace(c.execute(t, "ext", filter...)) == "" {
					return errors.New("not yet established")
				}

				return nil
			})

			out, err := c.Exec(t.Context(), host("a"), c.traffic("sweep", port(outside(v6), 0).String(), "-sport", strconv.Itoa(int(bound)), "-ports", "1-1023", "-timeout", "10s")...)
			if err != nil {
				t.Fatal(err)
			}

			var swept traffic.SweepReport
			if err := json.Unmarshal(out, &swept); err != nil || swept.Connected == 0 || swept.Connected+swept.Refused != swept.Attempts {
				t.Errorf("the pod's own connections from %d: %+v, %v", bound, swept, err)
			}
			// From a port that the pod has just used, and from a new one.
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

// testUnreachable: an ICMP error reaches the sender of the quoted packet.
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

// testEarlyFragments: a datagram with its last fragment first arrives, at the host and in OVN.
// OVS's own connection tracker does not reassemble fragments, and a later fragment has no port to
// select a load balancer.
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

// testGRE: pod and host use a protocol without ports with the same peer.
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

// testListener: a host process that listens inside OVN's range is reachable at once, over TCP and
// UDP, and pods are not affected. Flows follow the agent's next check of the host's sockets.
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
