package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// hopCase is a way to give a host its default route. Lines are commands of ip.
type hopCase struct {
	name string
	add  []string
	want []string // prefix and next hop
}

var hopCases = []hopCase{
	{"no route", nil, nil},
	{"a gateway", []string{"route add default via 10.9.0.1"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"the better metric", []string{"route add default via 10.9.0.1 metric 20", "route add default via 10.9.0.4 metric 10"}, []string{"0.0.0.0/0 10.9.0.4"}},
	{"an IPv6 next hop", []string{"route add 0.0.0.0/0 via inet6 fe80::1 dev tst0"}, []string{"0.0.0.0/0 fe80::1"}},
	{"on-link", []string{"route add default dev tst0"}, []string{"0.0.0.0/0 -"}},
	{"the flag onlink", []string{"route add default via 192.0.2.1 dev tst0 onlink"}, []string{"0.0.0.0/0 192.0.2.1"}},
	{"halves", []string{"route add 0.0.0.0/1 via 10.9.0.1", "route add 128.0.0.0/1 via 10.9.0.1"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{
		"different halves",
		[]string{"route add 0.0.0.0/1 via 10.9.0.1", "route add 128.0.0.0/1 via 10.9.0.4"},
		[]string{"0.0.0.0/1 10.9.0.1", "128.0.0.0/1 10.9.0.4"},
	},
	{"a half of another device", []string{"route add 0.0.0.0/1 via 10.8.0.1", "route add 128.0.0.0/1 via 10.9.0.4"}, []string{"128.0.0.0/1 10.9.0.4"}},
	{"a default route beside halves of another device", []string{"route add default via 10.9.0.1", "route add 0.0.0.0/1 via 10.8.0.1", "route add 128.0.0.0/1 via 10.8.0.1"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"a better route of another device", []string{"route add default via 10.9.0.1 metric 20", "route add default via 10.8.0.1 metric 10"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"another device alone", []string{"route add default via 10.8.0.1"}, nil},
	{"another table, a rule for all", []string{"route add default via 10.9.0.1 table 100", "rule add lookup 100"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"another table, a rule for the source", []string{"route add default via 10.9.0.1", "route add default via 10.9.0.4 table 100", "rule add from 10.9.0.2 lookup 100"}, []string{"0.0.0.0/0 10.9.0.4"}},
	{"another table, a rule for another source", []string{"route add default via 10.9.0.1", "route add default via 10.9.0.4 table 100", "rule add from 10.9.0.3 lookup 100"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"several next hops", []string{"route add default nexthop via 10.9.0.4 nexthop via 10.9.0.1 nexthop via 10.8.0.1"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"a nexthop object", []string{"nexthop add id 5 via 10.9.0.1 dev tst0", "route add default nhid 5"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"a group of nexthop objects", []string{"nexthop add id 5 via 10.9.0.4 dev tst0", "nexthop add id 6 via 10.9.0.1 dev tst0", "nexthop add id 7 group 5/6", "route add default nhid 7"}, []string{"0.0.0.0/0 10.9.0.1"}},
	{"unreachable", []string{"route add unreachable default"}, nil},
	{"blackhole", []string{"route add blackhole default"}, nil},
	{"prohibited by a rule", []string{"route add default via 10.9.0.1", "rule add prohibit"}, nil},
	{"routes to parts", []string{"route add 10.0.0.0/8 via 10.9.0.1", "route add 64.0.0.0/8 via 10.9.0.1", "route add 128.0.0.0/4 via 10.9.0.1"}, nil},
	{"a longer route to a probe", []string{"route add default via 10.9.0.1", "route add 64.0.0.0/8 via 10.9.0.4", "route add 128.0.0.1/32 via 10.9.0.4"}, []string{"0.0.0.0/0 10.9.0.1"}},
}

var hopCases6 = []hopCase{
	{"no route", nil, nil},
	{"a gateway", []string{"-6 route add default via fd09::1"}, []string{"::/0 fd09::1"}},
	{"a link-local gateway", []string{"-6 route add default via fe80::1 dev tst0"}, []string{"::/0 fe80::1"}},
	{"the better metric", []string{"-6 route add default via fd09::1 metric 20", "-6 route add default via fd09::4 metric 10"}, []string{"::/0 fd09::4"}},
	{"on-link", []string{"-6 route add default dev tst0"}, []string{"::/0 -"}},
	{"global addresses only", []string{"-6 route add 2000::/3 via fd09::1"}, []string{"::/0 fd09::1"}},
	{"halves", []string{"-6 route add ::/1 via fd09::1", "-6 route add 8000::/1 via fd09::1"}, []string{"::/0 fd09::1"}},
	{"different halves", []string{"-6 route add ::/1 via fd09::1", "-6 route add 8000::/1 via fd09::4"}, []string{"::/1 fd09::1", "8000::/1 fd09::4"}},
	{"local addresses by another router", []string{"-6 route add default via fd09::1", "-6 route add fc00::/7 via fd09::4"}, []string{"::/0 fd09::1", "fc00::/7 fd09::4"}},
	{"halves of global addresses", []string{"-6 route add 2000::/4 via fd09::1", "-6 route add 3000::/4 via fd09::4"}, []string{"2000::/4 fd09::1", "3000::/4 fd09::4"}},
	{"a better route of another device", []string{"-6 route add default via fd09::1 metric 20", "-6 route add default via fd08::1 metric 10"}, []string{"::/0 fd09::1"}},
	{"another device alone", []string{"-6 route add default via fd08::1"}, nil},
	{"another table, a rule for all", []string{"-6 route add default via fd09::1 table 100", "-6 rule add lookup 100"}, []string{"::/0 fd09::1"}},
	{"another table, a rule for the source", []string{"-6 route add default via fd09::1", "-6 route add default via fd09::4 table 100", "-6 rule add from fd09::2 lookup 100"}, []string{"::/0 fd09::4"}},
	{"several next hops", []string{"-6 route add default nexthop via fd09::4 nexthop via fd09::1"}, []string{"::/0 fd09::1"}},
	{"a nexthop object", []string{"nexthop add id 5 via fd09::1 dev tst0", "-6 route add default nhid 5"}, []string{"::/0 fd09::1"}},
	{"unreachable", []string{"-6 route add unreachable default"}, nil},
	{"routes to parts", []string{"-6 route add 2001:db8::/32 via fd09::1", "-6 route add fd00::/8 via fd09::1"}, nil},
}

func TestHops(t *testing.T) {
	for family, cases := range map[string][]hopCase{"10.9.0.2": hopCases, "fd09::2": hopCases6} {
		for _, tc := range cases {
			t.Run(family+" "+tc.name, func(t *testing.T) {
				hopDevices(t)
				addRoutes(t, tc.add...)

				hops, err := Hops("tst0", netip.MustParseAddr(family))
				if err != nil {
					t.Fatal(err)
				}

				if got := hopTexts(hops); !slices.Equal(got, tc.want) {
					t.Errorf("got %q, want %q; routes:\n%s", got, tc.want, testnode.Run(t, "ip", "route", "show", "table", "all"))
				}
			})
		}
	}
}

func hopTexts(hops []Hop) []string {
	var out []string

	for _, h := range hops {
		via := "-"
		if h.Via.IsValid() {
			via = h.Via.String()
		}

		out = append(out, h.Prefix.String()+" "+via)
	}

	return out
}

// TestHops_vrf: the uplink is in a VRF, and so is its default route.
func TestHops_vrf(t *testing.T) {
	if out, err := exec.Command("ip", "link", "add", "blue", "type", "vrf", "table", "10").CombinedOutput(); err != nil {
		t.Skipf("the kernel has no VRF: %s", out)
	}

	t.Cleanup(func() { _ = Delete("blue") })
	hopDevices(t)

	for _, line := range []string{
		"link set blue up", "link set tst0 master blue", "-6 addr replace fd09::2/64 dev tst0 nodad",
		"route add default via 10.9.0.1 vrf blue", "-6 route add default via fd09::1 vrf blue",
	} {
		testnode.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)
	}

	for source, want := range map[string]string{"10.9.0.2": "0.0.0.0/0 10.9.0.1", "fd09::2": "::/0 fd09::1"} {
		hops, err := Hops("tst0", netip.MustParseAddr(source))
		if got := hopTexts(hops); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("from %s: %q, %v; want %q", source, got, err, want)
		}
	}
}

// TestHops_routerPreference: of two routers that advertise themselves, the kernel prefers one, and
// its answer follows a change of the preference.
func TestHops_routerPreference(t *testing.T) {
	hopDevices(t)

	for key, value := range map[string]string{"accept_ra": "2", "accept_ra_from_local": "1", "accept_ra_rtr_pref": "1"} {
		testnode.Run(t, "sysctl", "-qw", "net.ipv6.conf.tst0."+key+"="+value)
	}

	for _, router := range []string{"fe80::a1", "fe80::a2"} {
		testnode.Run(t, "ip", "addr", "add", router+"/64", "dev", "tst0p", "nodad")
	}

	const high, low = 1 << 3, 3 << 3 // RFC 4191, 2.2
	for want, preference := range map[string][2]byte{"fe80::a1": {high, low}, "fe80::a2": {low, high}} {
		testnode.Eventually(t, "the default route via "+want, func() error {
			advertiseRouter(t, "fe80::a1", preference[0])
			advertiseRouter(t, "fe80::a2", preference[1])

			hops, err := Hops("tst0", netip.MustParseAddr("fd09::2"))
			if got := hopTexts(hops); err != nil || !slices.Equal(got, []string{"::/0 " + want}) {
				return fmt.Errorf("got %q, %w", got, err)
			}

			return nil
		})
	}
}

// advertiseRouter sends a router advertisement from an address of tst0p.
func advertiseRouter(t *testing.T, from string, flags byte) {
	t.Helper()

	peer, err := net.InterfaceByName("tst0p")
	if err != nil {
		t.Fatal(err)
	}

	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6) // the kernel computes the checksum
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)

	message := []byte{134, 0, 0, 0, 64, flags, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0} // for 1800 s

	err = errors.Join(
		unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.Bind(s, &unix.SockaddrInet6{Addr: netip.MustParseAddr(from).As16(), ZoneId: uint32(peer.Index)}),
		unix.Sendto(s, message, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(peer.Index)}),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// hopDevices adds tst0 and tst1 with addresses.
func hopDevices(t *testing.T) {
	t.Helper()

	for i, name := range []string{"tst0", "tst1"} {
		veth(t, name)
		testnode.Run(t, "ip", "link", "set", name, "up")
		testnode.Run(t, "ip", "addr", "add", fmt.Sprintf("10.%d.0.2/24", 9-i), "dev", name)
		testnode.Run(t, "ip", "addr", "add", fmt.Sprintf("fd0%d::2/64", 9-i), "dev", name, "nodad")
	}
}

// addRoutes runs commands of ip that add something, and removes that at the end of the test.
func addRoutes(t *testing.T, lines ...string) {
	t.Helper()
	t.Cleanup(func() { testnode.Run(t, "ip", "nexthop", "flush") })

	for _, line := range lines {
		testnode.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)

		if !strings.HasPrefix(line, "nexthop") {
			undo := strings.NewReplacer(" add ", " del ", " append ", " del ").Replace(line)

			t.Cleanup(func() { testnode.Run(t, append([]string{"ip"}, strings.Fields(undo)...)...) })
		}
	}
}

// TestWatch_routesOutside: rules, other tables, halves and nexthop objects cause an event.
func TestWatch_routesOutside(t *testing.T) {
	hopDevices(t)
	t.Cleanup(func() { testnode.Run(t, "ip", "-6", "rule", "del", "from", "fd09::2", "lookup", "100") })
	testnode.Eventually(t, "duplicate address detection ends, which causes events", func() error {
		if out := testnode.Run(t, "ip", "-6", "addr", "show", "tentative"); out != "" {
			return errors.New(out)
		}

		return nil
	})

	events := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error)
	go func() {
		ended <- Watch(ctx, slog.New(slog.DiscardHandler), func(device string) { events <- device })
	}()

	defer func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	quiet := func() (all int) { // until no event arrives
		for {
			select {
			case device := <-events:
				if device == "" {
					all++
				}
			case <-time.After(100 * time.Millisecond):
				return all
			}
		}
	}

	testnode.Eventually(t, "the watch begins", func() error {
		if quiet() == 0 {
			return errors.New("no event")
		}

		return nil
	})

	for _, line := range []string{
		"route add 0.0.0.0/0 via inet6 fe80::1 dev tst0", "route del default", "route add default dev tst0 table 100", "rule add lookup 100",
		"-6 rule add from fd09::2 lookup 100", "route add 128.0.0.0/1 via 10.9.0.1", "-6 route add 2000::/3 via fd09::1",
		"nexthop add id 5 via 10.9.0.1 dev tst0", "route add default nhid 5", "nexthop replace id 5 via 10.9.0.4 dev tst0", "nexthop del id 5", "rule del lookup 100",
	} {
		testnode.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)

		if quiet() == 0 {
			t.Errorf("ip %s: no event", line)
		}
	}

	for _, line := range []string{"route add 198.51.100.0/24 via 10.9.0.1", "-6 route add 2001:db8::/32 via fd09::1"} {
		testnode.Run(t, append([]string{"ip"}, strings.Fields(line)...)...)

		if n := quiet(); n != 0 {
			t.Errorf("ip %s: %d events, want none", line, n)
		}
	}
}

func TestDefaultDevice(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  []string
		want string
	}{
		{"none", nil, ""},
		{"a tunnel without a next hop beside a gateway", []string{"route add default via 10.9.0.1 metric 20", "route add default dev tst1"}, "tst0"},
		{"an IPv6 next hop", []string{"route add 0.0.0.0/0 via inet6 fe80::1 dev tst1"}, "tst1"},
		{"on-link", []string{"route add default dev tst1"}, "tst1"},
		{"halves", []string{"route add 0.0.0.0/1 via 10.8.0.1", "route add 128.0.0.0/1 via 10.8.0.1"}, "tst1"},
		{"another table", []string{"-6 route add default via fd08::1 table 100", "-6 rule add lookup 100"}, "tst1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hopDevices(t)
			addRoutes(t, tc.add...)

			if got, err := DefaultDevice(); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}
