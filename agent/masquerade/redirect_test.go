package masquerade

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// TestRedirects has a node with node ports between clients and pods. The pods see the client's
// address.
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
	to := func(addrs ...string) (out service.Redirect) {
		for _, a := range addrs {
			out.To = append(out.To, netip.AddrPortFrom(netip.MustParseAddr(a), port))
		}
		return out
	}
	from := func(r service.Redirect, ranges ...string) service.Redirect {
		for _, text := range ranges {
			r.From = append(r.From, netip.MustParsePrefix(text))
		}
		return r
	}
	c := config
	c.Redirects = map[bpf.ServiceKey]service.Redirect{
		key("192.0.2.2", 30080):   to("10.244.1.5"),
		key("192.0.2.2", 30081):   to("10.244.1.5", "10.244.1.6"),
		key("192.0.2.2", 30082):   to("10.244.1.5", "10.244.1.6"),
		key("2001:db8::2", 30080): to("fd00:10:244:1::5"),
		{Addr: netip.MustParseAddr("192.0.2.2"), Proto: 17, Port: 30053}: to("10.244.1.5"),
		key("2001:db8::2", 30081): {},
		key("192.0.2.2", 30083):   from(to("10.244.1.5"), "198.51.100.0/24", "192.0.2.0/28", "192.0.2.1/32"),
		key("192.0.2.2", 30084):   from(to("10.244.1.5", "10.244.1.6"), "192.0.2.64/26"),
		key("2001:db8::2", 30083): from(to("fd00:10:244:1::5"), "2001:db8::/127"),
		key("2001:db8::2", 30084): from(to("fd00:10:244:1::5"), "2001:db8:1::/48"),
	}
	for range 2 {
		if err := Sync(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct{ from, to string }{
			{"192.0.2.1", "192.0.2.2:30080"},
			{"192.0.2.1", "192.0.2.2:30081"},
			{"192.0.2.1", "192.0.2.2:30082"},
			{"192.0.2.1", "192.0.2.2:30083"},
			{"2001:db8::1", "[2001:db8::2]:30080"},
			{"2001:db8::1", "[2001:db8::2]:30083"},
		} {
			for range 4 {
				from := netip.AddrPortFrom(netip.MustParseAddr(p.from), 0)
				if got := netip.MustParseAddrPort(dial(t, world, from, p.to)); got.Addr().Unmap() != from.Addr() {
					t.Errorf("%s to %s: the pod sees %s", p.from, p.to, got)
				}
			}
		}
	}
	var silent sync.WaitGroup                                                   // both at once: only time shows that there is no answer
	for _, closed := range []string{"192.0.2.2:30084", "[2001:db8::2]:30084"} { // clients outside of its ranges
		silent.Go(func() {
			d := net.Dialer{Timeout: 2 * time.Second}
			var conn net.Conn
			err := link.InNetns("/proc/"+world+"/ns/net", func() (err error) {
				conn, err = d.Dial("tcp", closed)
				return err
			})
			if err == nil {
				conn.Close()
			}
			if netErr := net.Error(nil); !errors.As(err, &netErr) || !netErr.Timeout() {
				t.Errorf("%s: %v, want no answer", closed, err)
			}
		})
	}
	silent.Wait()
	script := Script(c)
	if n := strings.Count(script, "chain one_of_"); n != 1 {
		t.Errorf("%d chains for one list of targets:\n%s", n, script)
	}
}
