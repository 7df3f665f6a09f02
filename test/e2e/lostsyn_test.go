package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// dropSYN drops the first, the third, … SYN to a port, and counts those whose source a NodePort's
// gateway router has not translated.
const dropSYN = "table inet lostsyn {\n counter untranslated {}\n chain in {\n type filter hook prerouting priority -300;\n" +
	" tcp dport %[1]d tcp flags & (syn|ack) == syn ip saddr %[2]s counter name untranslated\n" +
	" tcp dport %[1]d tcp flags & (syn|ack) == syn ip6 saddr %[3]s counter name untranslated\n" +
	" tcp dport %[1]d tcp flags & (syn|ack) == syn numgen inc mod 2 == 0 counter drop\n }\n}\n"

// testLostSYN: a client outside reaches a NodePort with an endpoint on another node although its
// first SYN is lost behind the gateway.
//
// Open vSwitch's own connection tracker does not translate the source of a repeated SYN, so that
// the pod sees the client itself, and its answer takes another way. Seen with Open vSwitch 3.5 and
// OVN 25.03. Where the pod sees that, the test is skipped.
func testLostSYN(t *testing.T, c *Cluster) {
	c.tempService(t, lab.ServiceSpec{Name: "syn", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, 30088), Pods: []*lab.Pod{c.Pods["c"]}})
	bothFamilies(t, func(t *testing.T, v6 bool) {
		to := port(c.gateway(1)(v6), 30088)

		within(t, "an answer without loss", func() error { return c.isServedBy(t, "ext", "c", to) })

		c.execute(t, host("c"), "nft", fmt.Sprintf(dropSYN, podPort, outside(false), outside(true)))
		defer c.execute(t, host("c"), "nft", "delete table inet lostsyn")

		client := c.run(t, "the first SYN is lost", "ext", c.traffic("tcp", to.String(), "-timeout", "10s")...)

		for c.Datapath() != "system" && !client.ended() {
			counter := c.execute(t, host("c"), "nft", "list counter inet lostsyn untranslated")
			if !strings.Contains(counter, "packets 0 ") {
				t.Skipf("datapath %s: the pod sees a SYN from the client itself: %s", c.Datapath(), counter)
			}

			time.Sleep(100 * time.Millisecond)
		}

		client.wait(t)
	})
}
