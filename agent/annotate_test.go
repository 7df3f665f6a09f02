package agent

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// Addresses lost while no agent ran are found through the annotation.
func TestLostAddresses(t *testing.T) {
	prefixes := func(s ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, p := range s {
			out = append(out, netip.MustParsePrefix(p))
		}

		return out
	}
	for _, tc := range []struct {
		name            string
		told, has, host []netip.Prefix
		want            []netip.Addr
	}{
		{"none", prefixes("192.0.2.1/24"), prefixes("192.0.2.1/24"), prefixes("192.0.2.1/24"), nil},
		{"IPv4", prefixes("192.0.2.1/24", "2001:db8::1/64"), prefixes("192.0.2.2/24", "2001:db8::1/64"), prefixes("192.0.2.2/24", "2001:db8::1/64"), []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		{"IPv6", prefixes("192.0.2.1/24", "2001:db8::1/64"), prefixes("192.0.2.1/24"), prefixes("192.0.2.1/24"), []netip.Addr{netip.MustParseAddr("2001:db8::1")}},
		{"another one is used, both exist", prefixes("192.0.2.1/24"), prefixes("192.0.2.2/24"), prefixes("192.0.2.1/24", "192.0.2.2/24"), nil},
		{"another prefix length", prefixes("192.0.2.1/24"), prefixes("192.0.2.1/16"), prefixes("192.0.2.1/16"), nil},
		{"router address in layout dedicated", prefixes("192.0.2.1/24"), prefixes("192.0.2.1/24"), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			told := annotation.FormatGateway(annotation.Gateway{Mode: annotation.GatewayModeShared, MAC: "02:00:00:00:00:01", Addresses: tc.told})
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation.GatewayConfig: told}}}

			got := lostAddresses(node, gateway.Node{Addresses: tc.has, HostCIDRs: tc.host})
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}

	if got := lostAddresses(&corev1.Node{}, gateway.Node{}); got != nil {
		t.Errorf("no annotation: %v", got)
	}
}

// TestGatewayRoutes_linkLayerAddress: the route by a stand-in has the kernel's link-layer address
// or, if the kernel has none, the published one. Without both, the route is left out.
func TestGatewayRoutes_linkLayerAddress(t *testing.T) {
	hop, standIn := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("169.254.0.1")
	n := gateway.Node{Routes: []link.Hop{
		{Prefix: link.Everything(true), Via: hop}, {Prefix: link.Everything(false)}, {Prefix: netip.MustParsePrefix("fc00::/7"), Via: hop},
	}}
	others := []annotation.Route{{To: link.Everything(false)}, {To: netip.MustParsePrefix("fc00::/7"), Via: hop}}
	by := func(mac string) []annotation.Route {
		return append([]annotation.Route{{To: link.Everything(true), Via: standIn, MAC: mac}}, others...)
	}

	published := map[string]string{annotation.GatewayRoutes: annotation.FormatGatewayRoutes(by("02:00:00:00:00:01"))}
	for _, tc := range []struct {
		name      string
		published map[string]string
		mac       net.HardwareAddr
		want      []annotation.Route
	}{
		{"known", nil, net.HardwareAddr{2, 0, 0, 0, 0, 2}, by("02:00:00:00:00:02")},
		{"changed", published, net.HardwareAddr{2, 0, 0, 0, 0, 2}, by("02:00:00:00:00:02")},
		{"not yet known", published, nil, by("02:00:00:00:00:01")},
		{"never known", nil, nil, others},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: tc.published}}

			got := gatewayRoutes(node, n, func(a netip.Addr) net.HardwareAddr {
				if a != hop {
					t.Errorf("asks for %s", a)
				}

				return tc.mac
			})
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDiffering_noGatewayRoutes: a node without such routes gets no annotation. If the node had
// some, the annotation becomes empty.
func TestDiffering_noGatewayRoutes(t *testing.T) {
	want := map[string]string{annotation.GatewayRoutes: annotation.FormatGatewayRoutes(nil)}

	node := &corev1.Node{}
	if d := differing(node, want); len(d) != 0 {
		t.Errorf("without: %v", d)
	}

	node.Annotations = map[string]string{annotation.GatewayRoutes: `[{"to":"0.0.0.0/0"}]`}
	if d := differing(node, want); len(d) != 1 {
		t.Errorf("with another one: %v", d)
	}
}
