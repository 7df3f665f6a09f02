package annotation

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func hostNode(annotations map[string]string, status ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	for _, a := range status {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}

	return n
}

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}

	return out
}

// TestTrust_Split checks which addresses count: those in the Node's status, and the first 64 of those
// in the networks. Of the others, the first 64 are returned as claimed.
func TestTrust_Split(t *testing.T) {
	trust := Trust{Networks: prefixesOf("172.31.0.0/24", "2001:db8::/32")}
	n := hostNode(nil, "172.30.0.11", "::ffff:172.30.0.12", "node1")

	trusted, claimed, excess := trust.Split(n, prefixesOf("172.30.0.11/24", "172.30.0.12/16", "172.30.0.13/24", "172.31.0.5/24", "172.31.1.5/24", "2001:db8::1/64", "fd00::1/64"))
	if diff := cmp.Diff(fmt.Sprint(prefixesOf("172.30.0.11/24", "172.30.0.12/16", "172.31.0.5/24", "2001:db8::1/64")), fmt.Sprint(trusted)); diff != "" {
		t.Errorf("trusted (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(fmt.Sprint(prefixesOf("172.30.0.13/24", "172.31.1.5/24", "fd00::1/64")), fmt.Sprint(claimed)); diff != "" || excess != 0 {
		t.Errorf("excess %d, claimed (-want +got):\n%s", excess, diff)
	}

	many := prefixesOf("172.30.0.11/24")
	for i := range 70 {
		many = append(many, netip.MustParsePrefix(fmt.Sprintf("172.31.0.%d/24", i)), netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i)))
	}

	many = append(many, netip.MustParsePrefix("172.30.0.12/24"))

	trusted, claimed, excess = trust.Split(n, many)
	if len(trusted) != 2+64 || len(claimed) != 64 || excess != 6 || trusted[65].String() != "172.30.0.12/24" {
		t.Errorf("%d addresses are trusted, %d claimed, %d in excess, the last trusted one is %v; want 66, 64, 6 and 172.30.0.12/24",
			len(trusted), len(claimed), excess, trusted[len(trusted)-1])
	}
}

// TestTrust_HostAddresses checks that annotations of a Node add only trusted addresses, except for
// those of its pod subnets, which the controller writes.
func TestTrust_HostAddresses(t *testing.T) {
	annotations := map[string]string{
		HostCIDRs:     `["172.30.0.11/24", "172.31.0.11/24", "192.0.2.80/32", "fe80::1/64"]`,
		GatewayConfig: `{"default": {"mode": "shared", "interface-id": "breth0_node1", "mac-address": "02:00:00:00:00:01", "ip-addresses": ["172.31.0.12/24", "192.0.2.81/24"]}}`,
		NodeSubnets:   `{"default": ["10.244.1.0/24"]}`,
		TunnelAddress: "192.0.2.82",
	}

	for _, tc := range []struct {
		name     string
		networks []netip.Prefix
		tunnel   bool
		want     string
	}{
		{"status only", nil, false, "[10.244.1.2 172.30.0.11]"},
		{"a network", prefixesOf("172.31.0.0/24"), false, "[10.244.1.2 172.30.0.11 172.31.0.11 172.31.0.12]"},
		{"all", prefixesOf("0.0.0.0/0", "::/0"), true, "[10.244.1.2 172.30.0.11 172.31.0.11 172.31.0.12 192.0.2.80 192.0.2.81 192.0.2.82]"},
	} {
		trust, n := Trust{Networks: tc.networks}, hostNode(annotations, "172.30.0.11")
		if got := fmt.Sprint(trust.HostAddresses(n)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}

		if _, ok := trust.TunnelAddress(n); ok != tc.tunnel {
			t.Errorf("%s: the tunnel's address is trusted: %v, want %v", tc.name, ok, tc.tunnel)
		}
	}
}
