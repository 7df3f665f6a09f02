package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Ports of the SCTP servers and their service.
const (
	sctpPort     = 38412
	sctpNodePort = 30412
)

// needsSCTP requires SCTP in the kernel and its connection tracker.
func needsSCTP(c *Cluster) string {
	if reason := needsKernelConntrack(c); reason != "" {
		return reason
	}

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return fmt.Sprintf("this kernel has no SCTP: %v", err)
	}

	_ = unix.Close(fd)

	return ""
}

// testSCTP: associations of pods, hosts and services in each direction. As with TCP, the ports
// determine the owner of a packet.
func testSCTP(t *testing.T, c *Cluster) {
	for name, s := range map[string]struct {
		on string
		at func(bool) netip.Addr
	}{"a": {host("a"), c.pod("a")}, "c": {host("c"), c.pod("c")}, "ext": {"ext", outside}, "node1": {"node1", c.node(1)}} {
		at := port(s.at(false), sctpPort).String() + "," + port(s.at(true), sctpPort).String()
		if err := c.serveAs(t.Context(), s.on, "serve-sctp-"+name, "-name", name, "-sctp", at); err != nil {
			t.Fatal(err)
		}
	}

	err := c.addService(t.Context(), lab.ServiceSpec{
		Name: "sctp", Type: corev1.ServiceTypeNodePort, Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]},
		Ports: []corev1.ServicePort{{Name: "n2", Protocol: corev1.ProtocolSCTP, Port: sctpPort, TargetPort: intstr.FromInt32(sctpPort), NodePort: sctpNodePort}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.DelService(t.Context(), "default", "sctp"); err != nil {
			t.Error(err)
		}
	}()

	bothFamilies(t, func(t *testing.T, v6 bool) {
		for _, w := range []struct {
			name, from, want string
			to               netip.AddrPort
		}{
			{"outside to a NodePort of node1", "ext", "a,c", port(c.gateway(1)(v6), sctpNodePort)},
			{"outside to a NodePort of node2", "ext", "a,c", port(c.gateway(2)(v6), sctpNodePort)},
			{"pod to outside", host("a"), "ext", port(outside(v6), sctpPort)},
			{"pod to pod, across nodes", host("a"), "c", port(c.pod("c")(v6), sctpPort)},
			{"pod to cluster IP", host("b"), "a,c", port(c.cluster("sctp")(v6), sctpPort)},
			{"host to outside", "node1", "ext", port(outside(v6), sctpPort)},
			{"outside to host", "ext", "node1", port(c.node(1)(v6), sctpPort)},
			{"host to another's NodePort", "node1", "a,c", port(c.gateway(2)(v6), sctpNodePort)},
			{"host to cluster IP", "node1", "a,c", port(c.cluster("sctp")(v6), sctpPort)},
		} {
			if c.layout == dedicated && w.name == "host to cluster IP" {
				continue // there is no hairpin, and the kernel has no hook for SCTP
			}

			var src []string
			if w.from == "node1" {
				// IPv4 SCTP from the link-local masquerade address does not talk to private addresses; an
				// association with all addresses also uses that of the node.
				src = []string{"-src", c.node(1)(v6).String()}
			}

			t.Run(w.name, func(t *testing.T) {
				within(t, "the first association", func() error { // OVN may still be adding the service
					out, err := c.Exec(t.Context(), w.from, append(c.traffic("sctp", w.to.String()), src...)...)
					if err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}

					return nil
				})
				c.answers(t, w.from, w.want, "sctp", w.to, append(src, "-n", "10")...)
			})
		}

		t.Run("from a port outside OVN's range", func(t *testing.T) { c.leavesBySCTP(t, v6) })
	})
}

// leavesBySCTP: a pod's port outside OVN's range is translated into the range; the host's port
// stays.
func (c *Cluster) leavesBySCTP(t *testing.T, v6 bool) {
	to := port(outside(v6), sctpPort)
	for from, inside := range map[string]bool{host("a"): true, "node1": false} {
		_, client, _ := strings.Cut(strings.TrimSpace(c.execute(t, from, c.traffic("sctp", to.String(), "-sport", "36422")...)), " ")

		seen, err := netip.ParseAddrPort(client)
		if err != nil {
			t.Fatal(err)
		}

		if (seen.Port() >= 49152) != inside || !inside && seen.Port() != 36422 {
			t.Errorf("from port 36422 of %s: the outside host saw %s", from, seen)
		}
	}
}
