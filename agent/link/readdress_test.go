package link

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestReaddressPod changes all addresses of a pod and back. The device stays, without leftovers.
func TestReaddressPod(t *testing.T) {
	ns := newNetns(t)

	both := PodInterface{
		HostName: "vethagain", Netns: ns, Name: "eth0", MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 0, 3}, MTU: 1400,
		Addresses: prefixes("10.244.0.3/24", "fd00:10:244::3/64"),
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("fd00:10:244::1")},
	}
	with := func(mac byte, addresses []netip.Prefix, gateways ...string) PodInterface {
		p := both

		p.MAC, p.Addresses, p.Gateways = net.HardwareAddr{0x0a, 0x58, 10, 244, 0, mac}, addresses, nil
		for _, g := range gateways {
			p.Gateways = append(p.Gateways, netip.MustParseAddr(g))
		}

		return p
	}

	if err := SyncPodInterface(both); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Delete(both.HostName); err != nil {
			t.Error(err)
		}
	}()

	first, err := Get(both.HostName)
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name string
		want PodInterface
	}{
		{"other addresses and MAC", with(4, prefixes("10.244.0.4/24", "fd00:10:244::4/64"), "10.244.0.1", "fd00:10:244::1")},
		{"the MAC alone", with(5, prefixes("10.244.0.4/24", "fd00:10:244::4/64"), "10.244.0.1", "fd00:10:244::1")},
		{"the addresses alone", with(5, prefixes("10.244.0.6/24", "fd00:10:244::6/64"), "10.244.0.1", "fd00:10:244::1")},
		{"another subnet", with(7, prefixes("10.244.9.7/24", "fd00:10:244:9::7/64"), "10.244.9.1", "fd00:10:244:9::1")},
		{"one family less", with(7, prefixes("10.244.9.7/24"), "10.244.9.1")},
		{"the other family", with(8, prefixes("fd00:10:244::8/64"), "fd00:10:244::1")},
		{"as it was", both},
	} {
		if err := ReaddressPod(tt.want); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}

		if err := CheckPodInterface(tt.want); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}

		err := InNetns(ns, func() error {
			have, err := Addresses()
			if err != nil {
				return err
			}

			for _, a := range have {
				if a.Device == "eth0" && !a.Prefix.Addr().IsLinkLocalUnicast() && !slices.Contains(tt.want.Addresses, a.Prefix) {
					t.Errorf("%s: %s is left", tt.name, a.Prefix)
				}
			}

			routes, err := DefaultRoutes()
			for _, r := range routes {
				if !slices.Contains(tt.want.Gateways, r.NextHop) {
					t.Errorf("%s: a default route via %s is left", tt.name, r.NextHop)
				}
			}

			return err
		})
		if err != nil {
			t.Error(err)
		}
	}

	if now, err := Get(both.HostName); err != nil || now.Index != first.Index {
		t.Errorf("index %d, want the same %d; error %v", now.Index, first.Index, err)
	}
}
