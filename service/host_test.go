package service

import (
	"net/netip"
	"testing"
)

func TestIsOwn_addresses(t *testing.T) {
	has := func(a netip.Addr) bool {
		return a == netip.MustParseAddr("172.30.0.11") || a == netip.MustParseAddr("fe80::11")
	}
	for text, want := range map[string]bool{
		"0.0.0.0": true, "::": true, "::ffff:0.0.0.0": true,
		"127.0.0.1": true, "127.0.0.53": true, "127.255.255.254": true, "::1": true, "::ffff:127.0.0.53": true,
		"172.30.0.11": true, "::ffff:172.30.0.11": true, "fe80::11": true,
		"126.255.255.255": false, "128.0.0.1": false, "::2": false, "::ffff:128.0.0.1": false,
		"172.30.0.12": false, "169.254.1.1": false, "fe80::12": false,
	} {
		if got := IsOwn(netip.MustParseAddr(text), has); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
