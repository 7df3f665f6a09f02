package masquerade

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// testNode is a node, in the test's network namespace, between pods at mp0 and peers at up0. pods and
// world are processes in the network namespaces of these neighbours.
type testNode struct{ pods, world string }

// newNode sets up the node and its neighbours, and runs further commands. Lines that begin with
// "pod:" and "world:" are arguments of ip in these namespaces. The loopback devices are up because Go
// uses them to find out whether IPv6 sockets can serve IPv4.
func newNode(t *testing.T, further string) testNode {
	t.Helper()
	n := testNode{pods: testnode.Netns(t), world: testnode.Netns(t)}
	t.Cleanup(func() { _, _ = link.Delete("mp0"), link.Delete("up0") })
	n.run(t, `
ip link add mp0 type veth peer name p0 netns PODS
ip link add up0 type veth peer name w0 netns WORLD
ip link set mp0 up
ip link set up0 up
ip addr add 10.244.1.2/24 dev mp0
ip addr add fd00:10:244:1::2/64 dev mp0 nodad
ip addr add 192.0.2.2/24 dev up0
ip addr add 2001:db8::2/64 dev up0 nodad
pod:link set lo up
pod:link set p0 up
pod:addr add 10.244.1.5/24 dev p0
pod:addr add fd00:10:244:1::5/64 dev p0 nodad
pod:route add default via 10.244.1.2
pod:-6 route add default via fd00:10:244:1::2
world:link set lo up
world:link set w0 up
world:addr add 192.0.2.1/24 dev w0
world:addr add 2001:db8::1/64 dev w0 nodad
`)
	n.run(t, further)

	return n
}

// remotePods are commands by which the peer has pods of another node, which reach this node's pods.
const remotePods = `
ip route add 10.244.2.0/24 via 192.0.2.1
ip route add fd00:10:244:2::/64 via 2001:db8::1
world:addr add 10.244.2.5/32 dev lo
world:addr add fd00:10:244:2::5/128 dev lo nodad
world:route add 10.244.1.0/24 via 192.0.2.2
world:-6 route add fd00:10:244:1::/64 via 2001:db8::2`

func (n testNode) run(t *testing.T, lines string) {
	t.Helper()

	replace := strings.NewReplacer("PODS", n.pods, "WORLD", n.world,
		"pod:", "nsenter -t "+n.pods+" -n ip ", "world:", "nsenter -t "+n.world+" -n ip ")
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		testnode.Run(t, strings.Fields(replace.Replace(line))...)
	}
}

// syncs applies the configuration and removes the rules at the end of the test.
func syncs(t *testing.T, c Config) {
	t.Helper()

	if err := Sync(t.Context(), c); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := Remove(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
}
