package gateway

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

func hop(device, prefix, via string) link.Hop {
	h := link.Hop{Device: device, Prefix: netip.MustParsePrefix(prefix)}
	if via != "" {
		h.Via = netip.MustParseAddr(via)
	}

	return h
}

// TestNodeOf_routes: a plain default route is a next hop, all others are routes. None is of another
// device.
func TestNodeOf_routes(t *testing.T) {
	s := Settings{Wiring: Wiring{Uplink: "eth0", Bridge: "breth0"}, Cluster: Cluster{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}}

	for _, tc := range []struct {
		name     string
		hops     []link.Hop
		nextHops []string
		routes   int
		standIns map[string]string
		stranded int
	}{
		{"none", nil, nil, 0, nil, 2},
		{"plain", []link.Hop{hop("eth0", "0.0.0.0/0", "10.9.0.1"), hop("eth0", "::/0", "fe80::1")}, []string{"10.9.0.1", "fe80::1"}, 0, nil, 0},
		{"of the bridge", []link.Hop{hop("breth0", "0.0.0.0/0", "10.9.0.1")}, nil, 0, nil, 2},
		{"on-link", []link.Hop{hop("eth0", "0.0.0.0/0", ""), hop("eth0", "::/0", "fe80::1")}, []string{"fe80::1"}, 1, nil, 0},
		{"an IPv6 next hop", []link.Hop{hop("eth0", "0.0.0.0/0", "fe80::1"), hop("eth0", "::/0", "fe80::1")}, []string{"fe80::1"}, 1, map[string]string{"fe80::1": "169.254.0.1"}, 0},
		{
			"different IPv6 next hops",
			[]link.Hop{hop("eth0", "0.0.0.0/1", "fe80::1"), hop("eth0", "128.0.0.0/1", "fe80::2")},
			nil, 2,
			map[string]string{"fe80::1": "169.254.0.1", "fe80::2": "169.254.0.2"},
			1,
		},
		{
			"the stand-in's address is a next hop",
			[]link.Hop{hop("eth0", "0.0.0.0/1", "fe80::1"), hop("eth0", "128.0.0.0/1", "169.254.0.1")},
			nil, 2,
			map[string]string{"fe80::1": "169.254.0.2"},
			1,
		},
		{"one half", []link.Hop{hop("eth0", "0.0.0.0/1", "10.9.0.1")}, nil, 1, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := Host{Addresses: []link.Address{address("10.9.0.2/24", "eth0"), address("fd09::2/64", "eth0")}, Hops: tc.hops}

			n := nodeOf(h, s)
			if got := textsOf(n.NextHops); !slices.Equal(got, tc.nextHops) || len(n.Routes) != tc.routes || len(n.Stranded()) != tc.stranded {
				t.Errorf("next hops %v, routes %v, stranded %v", got, n.Routes, n.Stranded())
			}

			standIns := n.StandIns()
			if len(standIns) != len(tc.standIns) {
				t.Errorf("stand-ins %v, want %v", standIns, tc.standIns)
			}

			for via, want := range tc.standIns {
				if got := standIns[netip.MustParseAddr(via)]; got.String() != want {
					t.Errorf("stand-in of %s: %s, want %s", via, got, want)
				}
			}

			for _, p := range externalNetworks(h, n, s, facts{}) {
				if p.Bits() < 24 {
					t.Errorf("external network %s", p)
				}
			}
		})
	}
}

func textsOf(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}

	return out
}

// TestRouteKeeper_keepsHopsForAWhile: hops that are gone stay for the time of a flush, unless their
// family has others.
func TestRouteKeeper_keepsHopsForAWhile(t *testing.T) {
	k := newRouteKeeper(Settings{RunDir: t.TempDir()}, loop.NewSignal(), newRecorder(slog.New(slog.DiscardHandler)), func() {}, slog.New(slog.DiscardHandler))

	now := time.Now()
	for _, step := range []struct {
		name       string
		after      time.Duration
		have, want []link.Hop
	}{
		{"both", 0, []link.Hop{hop("eth0", "0.0.0.0/0", ""), hop("eth0", "::/0", "fe80::1")}, []link.Hop{hop("eth0", "0.0.0.0/0", ""), hop("eth0", "::/0", "fe80::1")}},
		{"IPv4 gone", time.Second, []link.Hop{hop("eth0", "::/0", "fe80::1")}, []link.Hop{hop("eth0", "::/0", "fe80::1"), hop("eth0", "0.0.0.0/0", "")}},
		{"IPv6 changed", time.Second, []link.Hop{hop("eth0", "::/0", "fe80::2")}, []link.Hop{hop("eth0", "::/0", "fe80::2"), hop("eth0", "0.0.0.0/0", "")}},
		{"IPv4 gone for long", time.Second, []link.Hop{hop("eth0", "::/0", "fe80::2")}, []link.Hop{hop("eth0", "::/0", "fe80::2")}},
		{"IPv4 back", time.Second, []link.Hop{hop("eth0", "0.0.0.0/0", "")}, []link.Hop{hop("eth0", "0.0.0.0/0", ""), hop("eth0", "::/0", "fe80::2")}},
		{"IPv6 back", time.Second, []link.Hop{hop("eth0", "::/0", "fe80::2")}, []link.Hop{hop("eth0", "::/0", "fe80::2"), hop("eth0", "0.0.0.0/0", "")}},
		{"IPv4 gone for long again", flushTime, []link.Hop{hop("eth0", "::/0", "fe80::2")}, []link.Hop{hop("eth0", "::/0", "fe80::2")}},
	} {
		now = now.Add(step.after)

		h := Host{Hops: step.have}
		if err := k.keepRoutes(nil, &h, now); err != nil || !slices.Equal(h.Hops, step.want) {
			t.Errorf("%s: %v, %v; want %v", step.name, h.Hops, err, step.want)
		}
	}
}
