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
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestRedirects has a node with node ports between clients and pods. The pods see the client's
// address.
func TestRedirects(t *testing.T) {
	n := newNode(t, "pod:addr add 10.244.1.6/24 dev p0")
	port := netip.MustParseAddrPort("0.0.0.0:" + serve(t, n.pods)).Port()
	key := func(addr string, number uint16) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: netip.MustParseAddr(addr), Proto: 6, Port: number}
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

	c.Redirects = map[verdict.ServiceKey]service.Redirect{
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
		syncs(t, c)

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
				if got := netip.MustParseAddrPort(dial(t, n.world, from, p.to)); got.Addr().Unmap() != from.Addr() {
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

			err := link.InNetns("/proc/"+n.world+"/ns/net", func() (err error) {
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
