package e2e

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testContainer: a container on the host that is not a pod reaches services. Its sockets are not in
// the host's cgroup, so OVN does the first translation, and the host forwards its packets by the
// gateway bridge. The userspace datapath drops a packet at its seventh recirculation. That suffices
// for services of the host itself, but not for services of pods.
func testContainer(t *testing.T, c *Cluster) {
	ns := strings.TrimSuffix(c.Pods["a"].Netns, "-p-default-a") + "-container"

	for _, argv := range []string{
		"ip netns add " + ns,
		"ip link add container type veth peer name eth0 netns " + ns,
		"ip link set container up",
		"ip addr add 192.0.2.1/30 dev container",
		"ip addr add 2001:db8:c::1/64 dev container nodad",
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
		"ip -n " + ns + " link set eth0 up",
		"ip -n " + ns + " addr add 192.0.2.2/30 dev eth0",
		"ip -n " + ns + " addr add 2001:db8:c::2/64 dev eth0 nodad",
		"ip -n " + ns + " route add default via 192.0.2.1",
		"ip -n " + ns + " route add default via 2001:db8:c::1",
	} {
		c.execute(t, "node1", strings.Fields(argv)...)
	}
	defer func() {
		c.execute(t, "node1", "ip", "netns", "del", ns)
		c.execute(t, "node1", "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
	}()

	inside := []string{"nsenter", "--net=/run/netns/" + ns, "--"}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		services := map[string]string{"host": "node1"}
		if c.Datapath() == "system" {
			services["web"] = "a,c"
		}

		for name, servers := range services {
			to := port(c.cluster(name)(v6), servicePort)

			within(t, "neighbours of the container", func() error { // OVS treats a retransmitted SYN as another one
				_, err := c.Exec(t.Context(), "node1", append(inside, c.traffic("udp", "-n", "1", to.String())...)...)
				return err
			})

			for _, protocol := range []string{"tcp", "udp"} {
				out := c.execute(t, "node1", append(inside, c.traffic(protocol, "-n", "20", to.String())...)...)
				for line := range strings.Lines(out) {
					server, _, _ := strings.Cut(line, " ")
					if !strings.Contains(","+servers+",", ","+server+",") {
						t.Errorf("%s to %s: answered by %q, want one of %s", protocol, to, line, servers)
					}
				}

				if n := strings.Count(out, "\n"); n != 20 {
					t.Errorf("%s to %s: %d answers, want 20", protocol, to, n)
				}
			}
		}
	})
}

// join returns the address of a node's gateway router towards the cluster router.
func (c *Cluster) join(t *testing.T, i int, v6 bool) netip.Addr {
	t.Helper()

	join, err := annotation.ParseJoin(nodeAnnotations(t, c.Lab, c.Node(i).Name))
	if err != nil {
		t.Fatal(err)
	}

	return choose(v6, join.IPv4.Addr(), join.IPv6.Addr())
}

func nodeAnnotations(t *testing.T, l *lab.Lab, node string) map[string]string {
	t.Helper()

	client, err := l.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return n.Annotations
}

// testLocalHost: a service with external policy Local and a host endpoint. The client's address is
// preserved where a program passes the packets to the listener, which is the case for TCP; UDP
// takes the hairpin.
func testLocalHost(t *testing.T, c *Cluster) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		to := port(c.gateway(1)(v6), localHostNodePort).String()
		clients := map[string]string{"tcp": outside(v6).String(), "udp": ovn(v6).String()}

		switch {
		case c.local: // the host's own NAT
			clients["udp"] = clients["tcp"]
		case c.layout == dedicated: // uses the management port, as the host would answer by its own NIC
			join := c.join(t, 1, v6).String()
			clients["tcp"], clients["udp"] = join, join
		case c.flows: // no program
			clients["tcp"] = clients["udp"]
		}

		for protocol, client := range clients {
			out := c.execute(t, "ext", c.traffic(protocol, "-n", "20", to)...)
			for line := range strings.Lines(out) {
				server, seen, _ := strings.Cut(strings.TrimSpace(line), " ")
				if addr, err := netip.ParseAddrPort(seen); server != "node1" || err != nil || addr.Addr().Unmap().String() != client {
					t.Errorf("%s: %q, want node1 to see %s", protocol, line, client)
				}
			}

			if n := strings.Count(out, "\n"); n != 20 {
				t.Errorf("%s: %d answers, want 20", protocol, n)
			}
		}
		// A node without endpoints does not answer.
		if err := isUnanswered(c.ask(t, "ext", port(c.gateway(2)(v6), localHostNodePort), "-timeout", "3s")); err != nil {
			t.Errorf("node2, which has no endpoint: %v", err)
		}
	})
}
