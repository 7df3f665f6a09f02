package masquerade

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// TestRedirects has a node with node ports between a world and pods, which see
// the client's address.
func TestRedirects(t *testing.T) {
	pods, world := testnode.Netns(t), testnode.Netns(t)
	for line := range strings.Lines(strings.TrimSpace(`
ip link add mp0 type veth peer name p0 netns PODS
ip link add up0 type veth peer name w0 netns WORLD
ip link set mp0 up
ip link set up0 up
ip addr add 10.244.1.2/24 dev mp0
ip addr add fd00:10:244:1::2/64 dev mp0 nodad
ip addr add 192.0.2.2/24 dev up0
ip addr add 2001:db8::2/64 dev up0 nodad
pod:link set p0 up
pod:addr add 10.244.1.5/24 dev p0
pod:addr add 10.244.1.6/24 dev p0
pod:addr add fd00:10:244:1::5/64 dev p0 nodad
pod:route add default via 10.244.1.2
pod:-6 route add default via fd00:10:244:1::2
world:link set w0 up
world:addr add 192.0.2.1/24 dev w0
world:addr add 2001:db8::1/64 dev w0 nodad
`)) {
		testnode.Run(t, strings.Fields(strings.NewReplacer("PODS", pods, "WORLD", world,
			"pod:", "nsenter -t "+pods+" -n ip ", "world:", "nsenter -t "+world+" -n ip ").Replace(strings.TrimSpace(line)))...)
	}
	t.Cleanup(func() { _, _ = link.Delete("mp0"), link.Delete("up0") })
	t.Cleanup(func() {
		if err := Remove(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	port := netip.MustParseAddrPort("0.0.0.0:" + serve(t, pods)).Port()
	key := func(addr string, number uint16) bpf.ServiceKey {
		return bpf.ServiceKey{Addr: netip.MustParseAddr(addr), Proto: 6, Port: number}
	}
	to := func(addrs ...string) (out []netip.AddrPort) {
		for _, a := range addrs {
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), port))
		}
		return out
	}
	c := config
	c.Redirects = map[bpf.ServiceKey][]netip.AddrPort{
		key("192.0.2.2", 30080):   to("10.244.1.5"),
		key("192.0.2.2", 30081):   to("10.244.1.5", "10.244.1.6"),
		key("192.0.2.2", 30082):   to("10.244.1.5", "10.244.1.6"),
		key("2001:db8::2", 30080): to("fd00:10:244:1::5"),
		{Addr: netip.MustParseAddr("192.0.2.2"), Proto: 17, Port: 30053}: to("10.244.1.5"),
		key("2001:db8::2", 30081): nil,
	}
	for range 2 {
		if err := Sync(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct{ from, to string }{
			{"192.0.2.1", "192.0.2.2:30080"}, {"192.0.2.1", "192.0.2.2:30081"}, {"192.0.2.1", "192.0.2.2:30082"}, {"2001:db8::1", "[2001:db8::2]:30080"},
		} {
			for range 4 {
				from := netip.AddrPortFrom(netip.MustParseAddr(p.from), 0)
				if got := netip.MustParseAddrPort(dial(t, world, from, p.to)); got.Addr().Unmap() != from.Addr() {
					t.Errorf("%s to %s: the pod sees %s", p.from, p.to, got)
				}
			}
		}
	}
	script := Script(c)
	if n := strings.Count(script, "chain one_of_"); n != 1 {
		t.Errorf("%d chains for one list of targets:\n%s", n, script)
	}
}
