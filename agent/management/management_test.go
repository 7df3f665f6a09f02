package management

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}

	return out
}

func TestPlanFor(t *testing.T) {
	cluster := prefixes("10.244.0.0/16", "fd00:10:244::/48")

	v4, v6 := netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")
	for _, tc := range []struct {
		name      string
		subnets   []netip.Prefix
		mac       string
		addresses []netip.Prefix
		routes    map[netip.Prefix]netip.Addr
	}{
		{
			"dual", prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), "0a:58:0a:f4:01:02", prefixes("10.244.1.2/24", "fd00:10:244:1::2/64"),
			map[netip.Prefix]netip.Addr{v4: netip.MustParseAddr("10.244.1.1"), v6: netip.MustParseAddr("fd00:10:244:1::1")},
		},
		{
			"IPv6 first, address from IPv4", prefixes("fd00:10:244:1::/64", "10.244.1.0/24"), "0a:58:0a:f4:01:02", prefixes("fd00:10:244:1::2/64", "10.244.1.2/24"),
			map[netip.Prefix]netip.Addr{v4: netip.MustParseAddr("10.244.1.1"), v6: netip.MustParseAddr("fd00:10:244:1::1")},
		},
		{"the cluster is one node", prefixes("10.244.0.0/16"), "0a:58:0a:f4:00:02", prefixes("10.244.0.2/16"), map[netip.Prefix]netip.Addr{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := PlanFor(tc.subnets, cluster)
			if err != nil {
				t.Fatal(err)
			}

			equal := cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
			if diff := cmp.Diff(tc.addresses, p.Addresses, equal); diff != "" {
				t.Error(diff)
			}

			if diff := cmp.Diff(tc.routes, p.Routes, equal); diff != "" {
				t.Error(diff)
			}

			if p.MAC.String() != tc.mac {
				t.Errorf("MAC %s, want %s", p.MAC, tc.mac)
			}
		})
	}

	if p, err := PlanFor(prefixes("fd00:10:244:1::/64"), cluster); err != nil || !strings.HasPrefix(p.MAC.String(), "0a:58:") || len(p.MAC) != 6 {
		t.Errorf("IPv6 alone: MAC %s, error %v", p.MAC, err)
	}

	if _, err := PlanFor(nil, cluster); err == nil {
		t.Error("no subnet: want an error")
	}
}

func TestPortIsRestored(t *testing.T) {
	sw := testnode.StartSwitch(t, true)

	c, err := ovs.Dial(t.Context(), sw.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	p := New(Options{
		OVS: c, Node: "node1", Bridge: "br-int", Datapath: ovs.DatapathNetdev, RunDir: sw.Dir,
		Cluster: prefixes("10.244.0.0/16", "fd00:10:244::/48"), Changed: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	testnode.Eventually(t, "waits for a subnet", func() error {
		if m := p.Missing(); !strings.Contains(m, "subnet") {
			return errors.New(m)
		}

		return nil
	})
	p.Set(prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), prefixes("100.64.0.0/16"), 1400)
	testnode.Eventually(t, "waits for ovn-controller", func() error {
		if m := p.Missing(); !strings.Contains(m, "ovn-controller") {
			return errors.New(m)
		}

		return nil
	})

	installed := func() { // the test plays ovn-controller
		testnode.Eventually(t, "port", func() error {
			return exec.Command("ovs-vsctl", "--db="+sw.Address, "--no-wait", "set", "Interface", Name, "external_ids:ovn-installed=true").Run()
		})
	}
	installed()

	right := func() error {
		if m := p.Missing(); m != "" {
			return errors.New(m)
		}

		var got string

		for _, what := range []string{"-br addr", "route", "-6 route", "link"} {
			out, err := exec.Command("ip", append(strings.Fields(what), "show", "dev", Name)...).CombinedOutput() // it may be deleted and recreated meanwhile
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}

			got += string(out)
		}

		for _, want := range []string{"10.244.1.2/24", "fd00:10:244:1::2/64", "10.244.0.0/16 via 10.244.1.1", "100.64.0.0/16 via 10.244.1.1", "fd00:10:244::/48 via fd00:10:244:1::1", "mtu 1400", "0a:58:0a:f4:01:02"} {
			if !strings.Contains(got, want) {
				return errors.New("no " + want + " in:\n" + got)
			}
		}

		return nil
	}
	testnode.Eventually(t, "port", right)

	if got := sw.Vsctl(t, "get", "Interface", Name, "external_ids:iface-id"); got != "k8s-node1\n" {
		t.Errorf("iface-id %s", got)
	}

	testnode.Run(t, "ip", "addr", "flush", "dev", Name)
	testnode.Eventually(t, "address restored", right)
	testnode.Run(t, "ip", "-4", "route", "flush", "dev", Name)
	testnode.Run(t, "ip", "-6", "route", "flush", "dev", Name)
	testnode.Eventually(t, "routes restored", right)
	sw.Daemon(t)
	testnode.Run(t, "ip", "link", "del", Name)
	testnode.Eventually(t, "device recreated", right)
	sw.Vsctl(t, "del-port", Name)
	testnode.Eventually(t, "waits for flows of the recreated port", func() error {
		if m := p.Missing(); !strings.Contains(m, "ovn-controller") {
			return errors.New(m)
		}

		return nil
	})
	installed()
	testnode.Eventually(t, "port recreated", func() error {
		if err := right(); err != nil {
			return err
		}

		_, _, err := c.Port(t.Context(), Name)

		return err
	})
	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	if err := Cleanup(t.Context(), c); err != nil {
		t.Error(err)
	}
}
