package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
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
			got := lost(node, gateway.Node{Addresses: tc.has, HostCIDRs: tc.host})
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := lost(&corev1.Node{}, gateway.Node{}); got != nil {
		t.Errorf("no annotation: %v", got)
	}
}
