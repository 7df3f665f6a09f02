package assignment

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// The agent accepts only those pod annotations that cannot harm its node.
func TestHarmfulAnnotationsAreRefused(t *testing.T) {
	mac := func(s string) net.HardwareAddr {
		m, err := net.ParseMAC(s)
		if err != nil {
			t.Fatal(err)
		}

		return m
	}
	node := map[string]string{
		annotation.NodeSubnets:    `{"default":["10.244.1.0/24","fd00:1::/64"]}`,
		annotation.ManagementMACs: annotation.FormatManagementMAC(mac("02:00:00:00:00:aa")),
		annotation.GatewayConfig: annotation.FormatGateway(annotation.Gateway{
			Mode: "shared", MAC: "02:00:00:00:00:bb", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
		}),
	}

	good := func() annotation.Pod {
		return annotation.Pod{
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.5/24"), netip.MustParsePrefix("fd00:1::5/64")}, MAC: mac("0a:58:0a:f4:01:05"),
			Gateways: []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:1::1")},
		}
	}
	for name, change := range map[string]func(*annotation.Pod){
		"as it is": func(*annotation.Pod) {}, "a requested MAC": func(p *annotation.Pod) { p.MAC = mac("02:00:00:00:00:01") },
		"one family":              func(p *annotation.Pod) { p.Addresses, p.Gateways = p.Addresses[:1], p.Gateways[:1] },
		"the other order":         func(p *annotation.Pod) { slices.Reverse(p.Addresses); slices.Reverse(p.Gateways) },
		"MAC of its IPv6 address": func(p *annotation.Pod) { p.MAC = derived(p.Addresses[1]) },
	} {
		p := good()
		change(&p)

		if err := checkConsistent(p, node); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	for _, s := range []string{
		"0a:58:0a:f4:01:01", "0a:58:0a:f4:01:02", "0a:58:0a:f4:01:06", "02:00:00:00:00:aa", "02:00:00:00:00:bb", "0a:58:64:40:00:02", "0a:58:a9:fe:a9:04",
		derived(netip.MustParsePrefix("fd00:1::1/64")).String(), derived(netip.MustParsePrefix("fd00:1::2/64")).String(),
		"01:00:5e:00:00:01", "33:33:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "02:00:00:00:00:00:00:01",
	} {
		p := good()

		p.MAC = mac(s)
		if checkConsistent(p, node) == nil {
			t.Errorf("MAC address %s is accepted", s)
		}
	}

	for i, addresses := range [][]string{
		{"10.244.1.0/24", "10.244.1.1/24", "10.244.1.2/24", "10.244.1.255/24", "10.244.2.5/24", "10.244.1.5/16", "10.244.1.5/32", "192.0.2.5/24", "fd00:1::6/64"},
		{"fd00:1::/64", "fd00:1::1/64", "fd00:1::2/64", "fd00:2::5/64", "fd00:1::5/48", "fd00:1::5/128", "2001:db8::5/64", "10.244.1.6/24"},
	} {
		for _, a := range addresses {
			p := good()
			p.Addresses[i] = netip.MustParsePrefix(a)

			p.MAC = derived(p.Addresses[0])
			if checkConsistent(p, node) == nil {
				t.Errorf("address %s is accepted", a)
			}

			p = good()

			p.Gateways[i] = p.Addresses[i].Addr()
			if checkConsistent(p, node) == nil {
				t.Errorf("gateway %s is accepted", p.Gateways[i])
			}
		}
	}

	for name, change := range map[string]func(*annotation.Pod){
		"no gateways": func(p *annotation.Pod) { p.Gateways = nil }, "one more gateway": func(p *annotation.Pod) { p.Gateways = append(p.Gateways, p.Gateways[0]) },
		"no addresses": func(p *annotation.Pod) { p.Addresses, p.Gateways = nil, nil },
		"250 addresses": func(p *annotation.Pod) {
			for n := range 250 {
				p.Addresses = append(p.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(n + 3)}), 24))
			}
		},
	} {
		p := good()
		change(&p)

		if checkConsistent(p, node) == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	if checkConsistent(good(), nil) == nil {
		t.Error("accepted on a node without subnets")
	}
}

func derived(a netip.Prefix) net.HardwareAddr { return annotation.DerivedMAC(a.Addr()) }
