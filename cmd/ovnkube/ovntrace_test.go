package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTraceGoesOn reads what ovn-trace and ovn-sbctl of OVN 23.03 and 25.03 print for a connection
// to a NodePort, in both families (testdata/trace-VERSION).
func TestTraceGoesOn(t *testing.T) {
	read := func(version, name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", "trace-"+version, name))
		if err != nil {
			t.Fatal(err)
		}

		return string(b)
	}
	for version, ends := range map[string]bool{"23.03": false, "25.03": true} {
		for family, want := range map[string]struct{ vip, after string }{
			"ipv4": {"ip4.dst == 172.30.0.11", "ip4.dst == 10.244.0.5 && ip.ttl == 64 && tcp.src == 4242 && tcp.dst == 8080 && flags.force_snat_for_lb == 1"},
			"ipv6": {"ip6.dst == fd00:172:30::11", "ip6.dst == fd01::5 && ip.ttl == 64 && tcp.src == 4242 && tcp.dst == 8080 && flags.force_snat_for_lb == 1"},
		} {
			t.Run(version+" "+family, func(t *testing.T) {
				if got := endsAtCTSNAT(read(version, family)); got != ends {
					t.Errorf("the trace ends at ct_snat: %t, want %t", got, ends)
				}

				flows, flow := read(version, "flows"), want.vip+" && ip.ttl == 64 && tcp.src == 4242 && tcp.dst == 30080"

				lb, ok := balancerOf(flows, flow)
				if !ok || !strings.Contains(lb.text, want.vip) || !strings.Contains(lb.text, "table=") {
					t.Fatalf("load balancer %+v, %t", lb, ok)
				}

				if got := lb.translate(flow); got != want.after {
					t.Errorf("behind the load balancer\n%s, want\n%s", got, want.after)
				}

				for _, other := range []string{strings.Replace(flow, "30080", "30081", 1), strings.Replace(flow, "tcp", "udp", 2), strings.Replace(flow, "11 &&", "12 &&", 1)} {
					if lb, ok := balancerOf(flows, other); ok {
						t.Errorf("%s: load balancer %+v", other, lb)
					}
				}
			})
		}
	}
}

// TestBackends reads the actions of logical flows without a port, without a backend, and with two.
func TestBackends(t *testing.T) {
	const match = "  table=9 (lr_in_dnat         ), priority=110  , match=(ct.new && !ct.rel && ip4 && ip4.dst == 192.0.2.1), action=("
	for action, want := range map[string]string{
		"ct_lb_mark(backends=10.0.0.1,10.0.0.2);)":      "ip4.dst == 10.0.0.1 && udp.dst == 53",
		"ct_lb_mark(backends=10.0.0.1:80; skip_snat);)": "ip4.dst == 10.0.0.1 && udp.dst == 80",
		"drop;)": "",
	} {
		lb, ok := balancerOf(match+action, "ip4.dst == 192.0.2.1 && udp.dst == 53")
		if !ok || lb.backend.IsValid() != (want != "") {
			t.Errorf("%s: %+v, %t", action, lb, ok)
		}

		if got := lb.translate("ip4.dst == 192.0.2.1 && udp.dst == 53"); want != "" && got != want {
			t.Errorf("%s: %s, want %s", action, got, want)
		}
	}
}
