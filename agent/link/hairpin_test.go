package link

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestHairpin adds the configuration to a device that also has the host's own.
func TestHairpin(t *testing.T) {
	veth(t, "tst0")

	if err := SetUp("tst0"); err != nil {
		t.Fatal(err)
	}

	testnode.Run(t, "ip", "addr", "add", "10.9.0.2/24", "dev", "tst0")
	testnode.Run(t, "ip", "route", "add", "10.77.0.0/16", "via", "10.9.0.1", "proto", "static")

	a := netip.MustParseAddr
	h := Hairpin{
		Addresses: []netip.Addr{a("169.254.169.2"), a("fd69::2")}, Neighbours: []netip.Addr{a("169.254.169.4"), a("fd69::4")},
		MAC: net.HardwareAddr{0x0a, 0x58, 0xa9, 0xfe, 0xa9, 0x04},
		Routes: []Route{
			{Prefix: netip.MustParsePrefix("169.254.169.1/32"), NextHop: a("169.254.169.4"), Source: a("10.9.0.2")},
			{Prefix: netip.MustParsePrefix("10.96.0.0/16"), NextHop: a("169.254.169.4"), Source: a("169.254.169.2"), MTU: 1400},
			{Prefix: netip.MustParsePrefix("fd00:96::/112"), NextHop: a("fd69::4"), Source: a("fd69::2"), MTU: 1400},
		},
	}
	has := func(want bool, argv, text string) {
		t.Helper()

		if out := testnode.Run(t, append([]string{"ip"}, strings.Fields(argv)...)...); strings.Contains(out, text) != want {
			t.Errorf("ip %s: %q there is not %t:\n%s", argv, text, want, out)
		}
	}

	for range 2 {
		if err := SyncHairpin("tst0", h); err != nil {
			t.Fatal(err)
		}
	}

	has(true, "addr show dev tst0", "inet 169.254.169.2/32 scope host deprecated")
	has(true, "addr show dev tst0", "inet6 fd69::2/128 scope global nodad deprecated")
	has(true, "route show", "10.96.0.0/16 via 169.254.169.4 dev tst0 proto 111 src 169.254.169.2 onlink mtu 1400")
	has(true, "-6 route show", "fd00:96::/112 via fd69::4 dev tst0 proto 111 src fd69::2")
	has(true, "neigh show dev tst0", "169.254.169.4 lladdr 0a:58:a9:fe:a9:04 PERMANENT")

	all := h.Routes

	h.Routes, h.Keep = all[:1], []netip.Prefix{all[1].Prefix, netip.MustParsePrefix("10.97.0.0/16")}
	if err := SyncHairpin("tst0", h); err != nil {
		t.Fatal(err)
	}

	has(true, "route show", "10.96.0.0/16 via 169.254.169.4")
	has(false, "route show", "10.97.0.0/16")
	has(false, "-6 route show", "fd00:96::/112")

	h.Keep = nil
	if err := SyncHairpin("tst0", h); err != nil {
		t.Fatal(err)
	}

	has(false, "route show", "10.96.0.0/16")
	has(true, "route show", "169.254.169.1 via 169.254.169.4")

	for range 2 {
		if err := RemoveHairpin("tst0", h); err != nil {
			t.Fatal(err)
		}
	}

	has(false, "route show", "169.254")
	has(false, "addr show dev tst0", "deprecated")
	has(false, "neigh show dev tst0", "PERMANENT")
	has(true, "route show", "10.77.0.0/16 via 10.9.0.1") // the host's own
	has(true, "addr show dev tst0", "10.9.0.2/24")
}

// TestHairpin_source checks that the kernel does not select the host's masquerade address as the source
// of other packets, although it is the first address of the device: for a default route without a next
// hop, and for one with an IPv6 next hop. The address may be of a former release.
func TestHairpin_source(t *testing.T) {
	veth(t, "tst0")

	if err := SetUp("tst0"); err != nil {
		t.Fatal(err)
	}

	a := netip.MustParseAddr
	h := Hairpin{
		Addresses: []netip.Addr{a("169.254.169.2")}, Neighbours: []netip.Addr{a("169.254.169.4")},
		MAC:    net.HardwareAddr{0x0a, 0x58, 0xa9, 0xfe, 0xa9, 0x04},
		Routes: []Route{{Prefix: netip.MustParsePrefix("10.96.0.0/16"), NextHop: a("169.254.169.4"), Source: a("169.254.169.2")}},
	}

	for name, before := range map[string]string{
		"a new address":                   "",
		"an address of a former release":  "169.254.169.2/32 dev tst0 preferred_lft 0 valid_lft forever",
		"an address of an administrator":  "169.254.169.2/32 dev tst0",
		"the address of an earlier round": "169.254.169.2/32 dev tst0 scope host preferred_lft 0 valid_lft forever",
	} {
		testnode.Run(t, "ip", "addr", "flush", "dev", "tst0")
		testnode.Run(t, "ip", "addr", "add", "fe80::55/64", "dev", "tst0", "nodad")

		if before != "" {
			testnode.Run(t, append([]string{"ip", "addr", "add"}, strings.Fields(before)...)...)
		}

		if err := SyncHairpin("tst0", h); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		testnode.Run(t, "ip", "addr", "add", "10.9.0.2/24", "dev", "tst0")

		for route, want := range map[string]string{
			"":                                     "10.96.0.1 via 169.254.169.4 dev tst0 src 169.254.169.2",
			"default dev tst0":                     "198.51.100.1 dev tst0 src 10.9.0.2",
			"0.0.0.0/0 via inet6 fe80::1 dev tst0": "198.51.100.1 via inet6 fe80::1 dev tst0 src 10.9.0.2",
		} {
			if route != "" {
				testnode.Run(t, append([]string{"ip", "route", "add"}, strings.Fields(route)...)...)
			}

			destination, _, _ := strings.Cut(want, " ")
			if got := testnode.Run(t, "ip", "route", "get", destination); !strings.HasPrefix(got, want) {
				t.Errorf("%s, route %q: %q, want %q", name, route, got, want)
			}

			if route != "" {
				testnode.Run(t, append([]string{"ip", "route", "del"}, strings.Fields(route)...)...)
			}
		}
	}
}
