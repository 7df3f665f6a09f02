package bpf

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

func TestConfig_Validate(t *testing.T) {
	good := (&node{uplink: 2, bridge: 3}).config()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"same interface", func(c *Config) { c.Bridge = 2 }, "same interface 2"},
		{"negative interface", func(c *Config) { c.Uplink = -1 }, "below zero"},
		{"families", func(c *Config) { c.Node4, c.Node6 = c.Node6, c.Node4 }, "is not IPv4"},
		{"mapped", func(c *Config) { c.Node6 = netip.MustParseAddr("::ffff:1.2.3.4") }, "is not IPv6"},
		{"empty range", func(c *Config) { c.SNATPorts = cluster.PortRange{First: 5, Last: 4} }, "5-4"},
		{"geneve port", func(c *Config) { c.GenevePort = 0 }, "Geneve port"},
		{"encap", func(c *Config) { c.EncapIP = c.Node4 }, "the node's own"},
		{"prefix", func(c *Config) { c.PodCIDRs = make([]netip.Prefix, 1) }, "pod CIDR"},
		{"prefixes", func(c *Config) {
			c.ServiceCIDRs = nil
			for range 5 {
				c.ServiceCIDRs = append(c.ServiceCIDRs, netip.MustParsePrefix("10.0.0.0/8"))
			}
		}, "at most 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.change(&c)

			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestConfig_Validate_joinsErrors(t *testing.T) {
	err := Config{}.Validate()
	for _, want := range []string{"SNAT port range", "Geneve port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNetmask(t *testing.T) {
	for prefix, want := range map[string][2]string{
		"10.96.1.2/16":    {"::ffff:10.96.0.0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:0"},
		"0.0.0.0/0":       {"::ffff:0.0.0.0", "ffff:ffff:ffff:ffff:ffff:ffff::"},
		"10.0.0.1/32":     {"::ffff:10.0.0.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"fd00:10:96::/61": {"fd00:10:96::", "ffff:ffff:ffff:fff8::"},
	} {
		net, mask := netmask(netip.MustParsePrefix(prefix))
		if diff := cmp.Diff(want, [2]string{text(net), text(mask)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", prefix, diff)
		}
	}
}

func text(w [4]uint32) string {
	var b [16]byte
	for i, v := range w {
		binary.NativeEndian.PutUint32(b[4*i:], v)
	}

	return netip.AddrFrom16(b).String()
}

func TestMissingCaps(t *testing.T) {
	const net, bpf, perfmon, admin = 1 << unix.CAP_NET_ADMIN, 1 << unix.CAP_BPF, 1 << unix.CAP_PERFMON, 1 << unix.CAP_SYS_ADMIN
	for _, tt := range []struct {
		have uint64
		want []string
	}{
		{net | bpf | perfmon, nil},
		{net | admin, nil},
		{admin, []string{"CAP_NET_ADMIN"}},
		{net | bpf, []string{"CAP_PERFMON"}},
		{0, []string{"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"}},
	} {
		if diff := cmp.Diff(tt.want, missingCaps(tt.have)); diff != "" {
			t.Errorf("capabilities %x (-want +got):\n%s", tt.have, diff)
		}
	}
}
