package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// newNetns returns the path of a network namespace that ends with the test.
func newNetns(t *testing.T) string {
	t.Helper()
	return "/proc/" + testnode.Netns(t) + "/ns/net"
}

func veth(t *testing.T, name string) {
	t.Helper()
	testnode.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	testnode.Run(t, "ip", "link", "set", name+"p", "up")
	t.Cleanup(func() { _ = Delete(name) })
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}

	return out
}

func TestMissingDevice(t *testing.T) {
	if _, err := Get("nothere"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "nothere") {
		t.Errorf("got %v, want ErrNotFound that names the device", err)
	}

	if err := Delete("nothere"); err != nil {
		t.Error(err)
	}
}

func TestAddressesAndRoutes(t *testing.T) {
	veth(t, "tst0")

	if err := SetUp("tst0"); err != nil {
		t.Fatal(err)
	}

	for _, want := range [][]netip.Prefix{
		prefixes("10.9.0.2/24", "fd09::2/64"), prefixes("10.9.0.2/24", "fd09::2/64"), prefixes("10.9.0.3/24"),
	} {
		if err := SyncAddresses("tst0", want); err != nil {
			t.Fatal(err)
		}

		all, err := Addresses()
		if err != nil {
			t.Fatal(err)
		}

		var got []netip.Prefix

		for _, a := range all {
			if a.Device == "tst0" && !a.LinkLocal {
				if a.Secondary {
					t.Errorf("%s is not usable at once", a.Prefix)
				}

				got = append(got, a.Prefix)
			}
		}

		if !slices.Equal(got, want) {
			t.Errorf("addresses %v, want %v", got, want)
		}
	}

	gw := netip.MustParseAddr("10.9.0.1")
	for range 2 {
		if err := SyncRoutes("tst0", map[netip.Prefix]netip.Addr{netip.MustParsePrefix("10.244.0.0/16"): gw, netip.MustParsePrefix("10.245.0.0/16"): gw}); err != nil {
			t.Fatal(err)
		}
	}

	if err := SyncRoutes("tst0", map[netip.Prefix]netip.Addr{netip.MustParsePrefix("10.244.0.0/16"): gw}); err != nil {
		t.Fatal(err)
	}

	if got := testnode.Run(t, "ip", "route", "show", "proto", "static"); strings.TrimSpace(got) != "10.244.0.0/16 via 10.9.0.1 dev tst0" {
		t.Errorf("routes %q", got)
	}

	testnode.Run(t, "ip", "route", "add", "default", "via", "10.9.0.1", "metric", "20")
	testnode.Run(t, "ip", "route", "add", "default", "via", "10.9.0.4", "metric", "10")

	defaults, err := DefaultRoutes()
	if err != nil || len(defaults) != 2 || defaults[0] != (DefaultRoute{Device: "tst0", NextHop: netip.MustParseAddr("10.9.0.4"), Metric: 10, Protocol: unix.RTPROT_BOOT}) {
		t.Errorf("default routes %+v, error %v", defaults, err)
	}
}

func TestPodInterface(t *testing.T) {
	ns := newNetns(t)

	p := PodInterface{
		HostName: "vethtest", Netns: ns, Name: "eth0", MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 0, 3}, MTU: 1400,
		Addresses: prefixes("10.244.0.3/24", "fd00:10:244::3/64"),
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("fd00:10:244::1")}, NoChecksum: true,
	}
	if err := SyncPodInterface(p); err != nil {
		t.Fatal(err)
	}

	first, err := Get(p.HostName)
	if err != nil {
		t.Fatal(err)
	}

	if err := SyncPodInterface(p); err != nil {
		t.Fatal(err)
	}

	if again, err := Get(p.HostName); err != nil || again.Index != first.Index {
		t.Errorf("second time: index %d, want the same %d; error %v", again.Index, first.Index, err)
	}

	if err := CheckPodInterface(p); err != nil {
		t.Error(err)
	}

	err = InNetns(ns, func() error {
		if on, err := ethtool("eth0", ethtoolGetTx, 0); err != nil || on != 0 {
			t.Errorf("transmit checksum offload %d, error %v; want it off", on, err)
		}

		return DisableLRO("eth0")
	})
	if err != nil {
		t.Error(err)
	}

	p.Addresses, p.Gateways = prefixes("10.244.0.4/24"), p.Gateways[:1]
	if err := CheckPodInterface(p); err == nil || !strings.Contains(err.Error(), "10.244.0.4/24") {
		t.Errorf("got %v, want an error that names the address", err)
	}

	if err := SyncPodInterface(p); err != nil {
		t.Errorf("an interface that is wrong is replaced: %v", err)
	}

	if v, _ := ReadSysctl("net/ipv6/conf/" + p.HostName + "/disable_ipv6"); v != "1" {
		t.Errorf("IPv6 on the host's end: disable_ipv6=%s", v)
	}

	if err := Delete(p.HostName); err != nil {
		t.Fatal(err)
	}

	p.Netns = "/proc/self/nothere"
	if err := SyncPodInterface(p); err == nil || !strings.Contains(err.Error(), p.Netns) {
		t.Errorf("got %v, want an error that names the namespace", err)
	}

	if _, err := Get(p.HostName); !errors.Is(err, ErrNotFound) {
		t.Errorf("host's end of a failed pair: %v", err)
	}
}

func TestSockets(t *testing.T) {
	tcp, err := net.Listen("tcp4", "0.0.0.0:50100")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()

	udp, err := net.ListenPacket("udp", "[::]:50101")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	for _, addr := range []string{"127.0.0.1:50102", "0.0.0.0:40000"} {
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}

	testnode.Run(t, "ip", "addr", "add", "10.8.1.1/32", "dev", "lo")
	defer testnode.Run(t, "ip", "addr", "del", "10.8.1.1/32", "dev", "lo")

	connected, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.8.1.1:50103")), net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.8.1.1:53")))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()

	got, err := Sockets(50000, 60000)
	if err != nil {
		t.Fatal(err)
	}

	want := []Socket{
		{Proto: 6, Local: netip.MustParseAddrPort("0.0.0.0:50100"), Listening: true},
		{Proto: 17, Local: netip.MustParseAddrPort("10.8.1.1:50103"), Remote: netip.MustParseAddrPort("10.8.1.1:53")},
		{Proto: 17, Local: netip.MustParseAddrPort("[::]:50101"), Listening: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan string, 1024)

	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, slog.New(slog.DiscardHandler), func(device string) { events <- device })
	}()

	until := func(want string) {
		for {
			select {
			case got := <-events:
				if got == want {
					return
				}
			case <-t.Context().Done():
				t.Fatalf("no event of %q", want)
			}
		}
	}
	until("") // subscribed
	veth(t, "tst1")
	until("tst1")
	testnode.Run(t, "ip", "addr", "add", "10.8.0.1/24", "dev", "tst1")
	until("")
	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestSysctl(t *testing.T) {
	veth(t, "tst2")

	if err := DisableIPv6("tst2"); err != nil {
		t.Fatal(err)
	}

	if err := QuietIPv6("tst2"); err != nil {
		t.Fatal(err)
	}

	for key, want := range map[string]string{"disable_ipv6": "0", "accept_ra": "0", "accept_dad": "0"} {
		if got, err := ReadSysctl("net/ipv6/conf/tst2/" + key); err != nil || got != want {
			t.Errorf("%s = %s, error %v; want %s", key, got, err, want)
		}
	}

	if err := WriteSysctl("net/nothere", "1"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "net/nothere") {
		t.Errorf("got %v, want one that names the key", err)
	}
}

// Existing routes are not written again: for each route that the kernel announces, ovs-vswitchd
// deletes the neighbours of its tunnels.
func TestRoutesAreWrittenOnce(t *testing.T) {
	veth(t, "tst0")

	if err := SetUp("tst0"); err != nil {
		t.Fatal(err)
	}

	if err := SyncAddresses("tst0", prefixes("10.9.0.2/24", "fd09::2/64")); err != nil {
		t.Fatal(err)
	}

	a, p := netip.MustParseAddr, netip.MustParsePrefix
	h := Hairpin{
		Addresses: []netip.Addr{a("169.254.169.2"), a("fd69::2")}, Neighbours: []netip.Addr{a("169.254.169.4"), a("fd69::4")},
		MAC: net.HardwareAddr{0x0a, 0x58, 0xa9, 0xfe, 0xa9, 0x04},
		Routes: []Route{
			{Prefix: p("169.254.169.4/32"), Source: a("169.254.169.2")},
			{Prefix: p("fd69::4/128"), Source: a("fd69::2")},
			{Prefix: p("10.96.0.0/16"), NextHop: a("169.254.169.4"), Source: a("169.254.169.2"), MTU: 1400},
			{Prefix: p("fd00:96::/112"), NextHop: a("fd69::4"), Source: a("fd69::2"), MTU: 1400},
		},
	}
	sync := func(hop string) {
		t.Helper()

		err := errors.Join(SyncHairpin("tst0", h), SyncRoutes("tst0", map[netip.Prefix]netip.Addr{p("10.244.0.0/16"): a("10.9.0.1"), p("fd00:10:244::/48"): a(hop)}))
		if err != nil {
			t.Fatal(err)
		}
	}
	sync("fd09::1")

	announced, done := make(chan netlink.RouteUpdate, 100), make(chan struct{})
	defer close(done)

	if err := netlink.RouteSubscribe(announced, done); err != nil {
		t.Fatal(err)
	}

	sync("fd09::1")
	sync("fd09::7") // another next hop is written

	for {
		update := <-announced
		switch ours := update.Protocol == hairpinProtocol || update.Protocol == unix.RTPROT_STATIC; {
		case update.Gw.String() == "fd09::7":
			return
		case ours:
			t.Errorf("announced again: %s", update.Route)
		}
	}
}
