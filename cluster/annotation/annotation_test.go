package annotation

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		return v
	}
}

func TestRoundTrip(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0x58, 10, 244, 1, 2}
	subnets := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")}
	join := Join{IPv4: netip.MustParsePrefix("100.64.0.2/16"), IPv6: netip.MustParsePrefix("fd98::2/64")}
	gateway := Gateway{
		Mode: "shared", InterfaceID: "breth0_n", MAC: mac.String(), Addresses: subnets[:1],
		NextHops: []netip.Addr{netip.MustParseAddr("172.30.0.200")}, NodePorts: true, VLAN: 7,
	}
	pod := Pod{Addresses: subnets, MAC: mac, Gateways: []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:10:244:1::1")}}

	a := map[string]string{
		NodeSubnets: FormatNodeSubnets(subnets), NodeJoin: FormatJoin(join), GatewayConfig: FormatGateway(gateway),
		HostCIDRs: FormatHostCIDRs(subnets), ManagementMACs: FormatManagementMAC(mac), PodNetworks: FormatPod(pod), NodeID: "3", PodMTU: "1442",
	}
	for _, d := range []string{
		cmp.Diff(subnets, must(ParseNodeSubnets(a))(t), equal),
		cmp.Diff(join, must(ParseJoin(a))(t), equal),
		cmp.Diff(gateway, must(ParseGateway(a))(t), equal),
		cmp.Diff(subnets, must(ParseHostCIDRs(a))(t), equal),
		cmp.Diff(mac, must(ParseManagementMAC(a))(t)),
		cmp.Diff(pod, must(ParsePod(a))(t), equal),
		cmp.Diff(3, must(ParseNodeID(a))(t)),
		cmp.Diff(1442, must(ParsePodMTU(a))(t)),
	} {
		if d != "" {
			t.Error(d)
		}
	}
}

// TestFirstPod: the first generation's annotation has one address, IPv4 where there is one, and is
// understood where it is the only one.
func TestFirstPod(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0x58, 10, 244, 1, 2}
	p4, p6 := netip.MustParsePrefix("10.244.1.3/24"), netip.MustParsePrefix("fd00:10:244:1::3/64")
	g4, g6 := netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:10:244:1::1")
	both := Pod{Addresses: []netip.Prefix{p6, p4}, MAC: mac, Gateways: []netip.Addr{g6, g4}}

	text := FormatFirstPod(both)
	if want := `{"ip_address":"10.244.1.3/24","mac_address":"0a:58:0a:f4:01:02","gateway_ip":"10.244.1.1"}`; text != want {
		t.Errorf("%s, want %s", text, want)
	}

	want := Pod{Addresses: []netip.Prefix{p4}, MAC: mac, Gateways: []netip.Addr{g4}}
	if d := cmp.Diff(want, must(ParsePod(map[string]string{FirstPod: text}))(t), equal); d != "" {
		t.Error(d)
	}

	if d := cmp.Diff(both, must(ParsePod(map[string]string{FirstPod: text, PodNetworks: FormatPod(both)}))(t), equal); d != "" {
		t.Errorf("beside the other: %s", d)
	}

	if text := FormatFirstPod(Pod{Addresses: []netip.Prefix{p6}, MAC: mac}); !strings.Contains(text, `"fd00:10:244:1::3/64"`) {
		t.Errorf("IPv6 alone: %s", text)
	}

	for _, bad := range []string{`{}`, `{"ip_address":"10.244.1.3"}`, `{"ip_address":"10.244.1.3/24","mac_address":"x"}`, `[]`} {
		if p, err := ParsePod(map[string]string{FirstPod: bad}); err == nil {
			t.Errorf("%s: %+v", bad, p)
		}
	}
}

// TestShape holds the JSON that other tools of the ecosystem read.
func TestShape(t *testing.T) {
	got := FormatGateway(Gateway{Mode: "shared", InterfaceID: "breth0_n", MAC: "0a:58:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}})

	want := `{"default":{"mode":"shared","interface-id":"breth0_n","mac-address":"0a:58:00:00:00:01","ip-addresses":["192.0.2.1/24"],"ip-address":"192.0.2.1/24","node-port-enable":"false","vlan-id":"0"}}`
	if got != want {
		t.Errorf("gateway:\n got %s\nwant %s", got, want)
	}

	if got, want := FormatGateway(Gateway{Mode: GatewayModeDisabled}), `{"default":{"mode":""}}`; got != want {
		t.Errorf("no gateway:\n got %s\nwant %s", got, want)
	}
}

// TestNoGateway: ovn-kubernetes has no word for it, others have.
func TestNoGateway(t *testing.T) {
	for _, text := range []string{`{"default":{"mode":""}}`, `{"default":{}}`, `{"default":{"mode":"disabled"}}`} {
		got := must(ParseGateway(map[string]string{GatewayConfig: text}))(t)
		if diff := cmp.Diff(Gateway{Mode: GatewayModeDisabled}, got, equal); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestPodMTU(t *testing.T) {
	for _, tt := range []struct {
		mtu    int
		v4, v6 bool
	}{{575, false, false}, {576, true, false}, {1279, true, false}, {1280, true, true}, {65535, true, true}, {65536, false, false}} {
		if err := CheckPodMTU(tt.mtu, false); (err == nil) != tt.v4 {
			t.Errorf("%d with IPv4: %v", tt.mtu, err)
		}

		if err := CheckPodMTU(tt.mtu, true); (err == nil) != tt.v6 {
			t.Errorf("%d with IPv6: %v", tt.mtu, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	tests := []struct {
		key, value string
		parse      func(map[string]string) error
	}{
		{NodeSubnets, `{"default":[]}`, func(a map[string]string) error { _, err := ParseNodeSubnets(a); return err }},
		{NodeSubnets, `["10.0.0.0/8"]`, func(a map[string]string) error { _, err := ParseNodeSubnets(a); return err }},
		{PodMTU, "100", func(a map[string]string) error { _, err := ParsePodMTU(a); return err }},
		{NodeID, "0", func(a map[string]string) error { _, err := ParseNodeID(a); return err }},
		{NodeJoin, `{"default":{"ipv4":"100.64.0.2"}}`, func(a map[string]string) error { _, err := ParseJoin(a); return err }},
		{GatewayConfig, `{}`, func(a map[string]string) error { _, err := ParseGateway(a); return err }},
		{GatewayConfig, `{"default":{"mode":"shared","mac-address":"x","ip-addresses":["192.0.2.1/24"]}}`, func(a map[string]string) error { _, err := ParseGateway(a); return err }},
		{GatewayConfig, `{"default":{"mode":"routed","mac-address":"0a:58:00:00:00:01","ip-addresses":["192.0.2.1/24"]}}`, func(a map[string]string) error { _, err := ParseGateway(a); return err }},
		{GatewayConfig, `{"default":{"mode":"shared","mac-address":"0a:58:00:00:00:01"}}`, func(a map[string]string) error { _, err := ParseGateway(a); return err }},
		{GatewayConfig, `{"default":{"mode":"disabled","vlan-id":"4095"}}`, func(a map[string]string) error { _, err := ParseGateway(a); return err }},
		{GatewayRoutes, `{}`, func(a map[string]string) error { _, err := ParseGatewayRoutes(a); return err }},
		{GatewayRoutes, `[{"via":"192.0.2.1"}]`, func(a map[string]string) error { _, err := ParseGatewayRoutes(a); return err }},
		{GatewayRoutes, `[{"to":"0.0.0.0/0","via":"fe80::1"}]`, func(a map[string]string) error { _, err := ParseGatewayRoutes(a); return err }},
		{GatewayRoutes, `[{"to":"0.0.0.0/0","via":"192.0.2.1","mac":"x"}]`, func(a map[string]string) error { _, err := ParseGatewayRoutes(a); return err }},
		{ManagementMACs, `{"default":""}`, func(a map[string]string) error { _, err := ParseManagementMAC(a); return err }},
		{HostCIDRs, `["192.0.2.1"]`, func(a map[string]string) error { _, err := ParseHostCIDRs(a); return err }},
		{PodNetworks, `{"default":{"mac_address":"0a:58:00:00:00:01"}}`, func(a map[string]string) error { _, err := ParsePod(a); return err }},
	}
	for _, tt := range tests {
		err := tt.parse(map[string]string{tt.key: tt.value})
		if err == nil || !strings.Contains(err.Error(), tt.key) || errors.Is(err, ErrNotSet) {
			t.Errorf("%s=%s: %v, want an error that names the key", tt.key, tt.value, err)
		}

		if err := tt.parse(nil); !errors.Is(err, ErrNotSet) {
			t.Errorf("%s absent: %v, want ErrNotSet", tt.key, err)
		}
	}
}

func TestGatewayRoutes_roundTrip(t *testing.T) {
	for _, routes := range [][]Route{
		nil,
		{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("169.254.0.1"), MAC: "02:00:00:00:00:01"}, {To: netip.MustParsePrefix("::/0")}},
		{{To: netip.MustParsePrefix("fc00::/7"), Via: netip.MustParseAddr("fe80::1")}},
	} {
		value := FormatGatewayRoutes(routes)

		got, err := ParseGatewayRoutes(map[string]string{GatewayRoutes: value})
		if err != nil || !cmp.Equal(routes, got, equal, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
}

func FuzzParsePod(f *testing.F) {
	f.Add(`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1"]}}`)
	f.Add(`{"default":{"ip_addresses":["10.100.0.0/10"],"mac_address":"00:00:00:00:00:00","gateway_ips":[]}}`)
	f.Fuzz(func(t *testing.T, value string) {
		pod, err := ParsePod(map[string]string{PodNetworks: value})
		if err != nil {
			return
		}

		again, err := ParsePod(map[string]string{PodNetworks: FormatPod(pod)})
		if err != nil || !cmp.Equal(pod, again, equal, cmpopts.EquateEmpty()) { // an empty list is not written
			t.Errorf("%s: %+v, then %+v, %v", value, pod, again, err)
		}
	})
}

func TestSameGateway(t *testing.T) {
	g := Gateway{
		Mode: GatewayModeShared, InterfaceID: "breth0_node1", MAC: "0a:58:00:00:00:01", NodePorts: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/24")}, NextHops: []netip.Addr{netip.MustParseAddr("172.30.0.200")},
	}
	ours := FormatGateway(g)
	theirs := strings.Replace(ours, `"mode"`, `"bridge-id":"breth0","mode"`, 1)

	g.NextHops = nil
	for _, tt := range []struct {
		name, a, b string
		want       bool
	}{
		{"the same", ours, ours, true},
		{"more words", ours, theirs, true},
		{"another gateway", FormatGateway(g), theirs, false},
		{"not set", ours, "", false},
		{"neither", "", "", false},
	} {
		if got := SameGateway(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestParseRoutablePods(t *testing.T) {
	if _, err := ParseRoutablePods(nil); !errors.Is(err, ErrNotSet) {
		t.Errorf("without the annotation: %v, want %v", err, ErrNotSet)
	}

	for text, want := range map[string]bool{"true": true, "false": false} {
		if got, err := ParseRoutablePods(map[string]string{RoutablePods: text}); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}

	if _, err := ParseRoutablePods(map[string]string{RoutablePods: "yes"}); err == nil {
		t.Error(`"yes": no error`)
	}
}

func TestPatch(t *testing.T) {
	for want, got := range map[string][]byte{
		`{"metadata":{"annotations":{"k":"v"}}}`: Patch(metav1.ObjectMeta{}, map[string]string{"k": "v"}),
		`{"metadata":{"annotations":{"k":null},"resourceVersion":"7","uid":"u"}}`: Patch(
			metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Name: "not part of it"}, map[string]any{"k": nil}),
	} {
		if string(got) != want {
			t.Errorf("patch %s, want %s", got, want)
		}
	}
}
