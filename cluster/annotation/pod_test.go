package annotation

import (
	"net/netip"
	"testing"
)

// TestDerivedMAC has fixed values, because the controller and all agents must derive the same ones.
func TestDerivedMAC(t *testing.T) {
	for in, want := range map[string]string{
		"10.244.1.1":        "0a:58:0a:f4:01:01",
		"fd00:10:244:1::1":  "0a:58:6f:b3:a3:91",
		"fd00:10:244:1::10": "0a:58:60:a3:80:b3",
	} {
		if got := DerivedMAC(netip.MustParseAddr(in)).String(); got != want {
			t.Errorf("DerivedMAC(%s) = %s, want %s", in, got, want)
		}
	}
}
