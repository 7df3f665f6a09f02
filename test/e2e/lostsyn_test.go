package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// dropSYN drops the first, the third, … SYN to a port.
const dropSYN = "table inet lostsyn {\n chain in {\n type filter hook prerouting priority -300;\n tcp dport %d tcp flags & (syn|ack) == syn numgen inc mod 2 == 0 counter drop\n }\n}\n"

// testLostSYN: a client outside reaches a NodePort with an endpoint on another node although its
// first SYN is lost behind the gateway.
func testLostSYN(t *testing.T, c *Cluster) {
	c.tempService(t, lab.ServiceSpec{Name: "syn", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, 30088), Pods: []*lab.Pod{c.Pods["c"]}})
	bothFamilies(t, func(t *testing.T, v6 bool) {
		to := port(c.gateway(1)(v6), 30088)
		within(t, "an answer without loss", func() error { return c.isServedBy(t, "ext", "c", to) })
		c.execute(t, host("c"), "nft", fmt.Sprintf(dropSYN, podPort))
		defer c.execute(t, host("c"), "nft", "delete table inet lostsyn")
		out, err := c.Exec(t.Context(), "ext", c.traffic("tcp", to.String(), "-timeout", "10s")...)
		if err != nil {
			t.Errorf("the first SYN is lost: %v: %s", err, out)
		}
	})
}
