package controller_test

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
)

func TestValidate(t *testing.T) {
	prefix := netip.MustParsePrefix

	for _, tt := range []struct {
		name   string
		change func(*controller.Config)
		want   []string // each must be in the error; none: no error
	}{
		{"valid", func(*controller.Config) {}, nil},
		{"a join subnet too many", func(c *controller.Config) { c.ClusterSubnets = c.ClusterSubnets[:1] }, nil},
		{"no API server", func(c *controller.Config) { c.RestConfig = nil }, []string{"no API server"}},
		{"no cluster subnet", func(c *controller.Config) { c.ClusterSubnets = nil }, []string{"no cluster subnet"}},
		{"host bits", func(c *controller.Config) { c.ClusterSubnets[0].Prefix = prefix("10.244.1.0/16") }, []string{"10.244.1.0/16", "10.244.0.0/16"}},
		{"host prefix", func(c *controller.Config) { c.ClusterSubnets[0].HostLen = 8; c.ClusterSubnets[1].HostLen = 127 }, []string{"10.244.0.0/16: host prefix length 8", "fd00:10:244::/48: host prefix length 127"}},
		{"cluster and service subnets overlap", func(c *controller.Config) { c.ServiceCIDRs[0] = prefix("10.244.128.0/20") }, []string{"cluster subnet 10.244.0.0/16 overlaps service CIDR 10.244.128.0/20"}},
		{"cluster subnets overlap", func(c *controller.Config) {
			c.ClusterSubnets = append(c.ClusterSubnets, controller.ClusterSubnet{Prefix: prefix("10.244.64.0/18"), HostLen: 24})
		}, []string{"10.244.0.0/16 overlaps cluster subnet 10.244.64.0/18"}},
		{"join subnet overlaps", func(c *controller.Config) { c.JoinSubnets[0] = prefix("10.96.0.0/24") }, []string{"service CIDR 10.96.0.0/16 overlaps join subnet 10.96.0.0/24"}},
		{"no join subnet", func(c *controller.Config) { c.JoinSubnets = c.JoinSubnets[:1] }, []string{"0 join subnets of IPv6"}},
		{"SNAT ports", func(c *controller.Config) { c.SNATPorts.First, c.SNATPorts.Last = 2, 1 }, []string{"2-1"}},
		{"MTU", func(c *controller.Config) { c.MTU = 1279 }, []string{"MTU 1279", "1280"}},
		{"addresses", func(c *controller.Config) { c.NBAddress, c.SBAddress, c.MetricsAddr = "x", "tcp:1.2.3.4", "9409" }, []string{`northbound: parse database address "x"`, `southbound: parse database address "tcp:1.2.3.4"`, "metrics address"}},
		{"lease namespace", func(c *controller.Config) { c.LeaseNamespace = "" }, []string{"namespace"}},
		{"several", func(c *controller.Config) { c.MTU = 1; c.RestConfig = nil; c.ServiceCIDRs[0] = prefix("10.244.0.0/24") }, []string{"MTU 1:", "no API server", "overlaps"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config("unix:/nowhere", &rest.Config{})
			tt.change(&c)

			err := c.Validate()
			if (err != nil) != (tt.want != nil) {
				t.Fatalf("Validate: %v, want %q", err, tt.want)
			}

			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("Validate: %v, want it to say %q", err, w)
				}
			}
		})
	}
}
