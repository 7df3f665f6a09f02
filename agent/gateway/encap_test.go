package gateway

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestEncapAddress has the host's addresses where another layout or the boot left them.
func TestEncapAddress(t *testing.T) {
	const own, router = "172.30.0.11", "172.31.0.11"

	on := func(device string, more ...link.Address) Host {
		return Host{
			Addresses: append(more, address("fe80::1/64", device), address("fd69::2/128", "breth0"), address(own+"/24", device)),
			Defaults:  []link.DefaultRoute{{Device: device, NextHop: netip.MustParseAddr("172.30.0.200")}},
		}
	}
	direct := Settings{Wiring: Wiring{Uplink: "eth0", Bridge: "breth0", Layout: verdict.Direct}, NotHost: []string{"breth0", "ovn-k8s-mp0"}}
	bridged := direct
	bridged.Layout, bridged.NotHost = verdict.Bridged, []string{"ovn-k8s-mp0"}
	dedicated := direct
	dedicated.Layout, dedicated.Uplink, dedicated.Bridge = verdict.Dedicated, "eth1", "breth1"

	dedicated.Addresses = []netip.Prefix{netip.MustParsePrefix(router + "/24")}
	for _, c := range []struct {
		name      string
		s         Settings
		h         Host
		want      string
		misplaced bool
	}{
		{"direct", direct, on("eth0"), own, false},
		{"direct, not moved back yet", direct, on("breth0"), own, false},
		{"bridged", bridged, on("breth0"), own, false},
		{"bridged, not moved yet", bridged, on("eth0"), own, true},
		{"dedicated", dedicated, on("eth0"), own, false},
		{"nowhere", bridged, on("eth7"), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := encapAddress(c.h, c.s)
			if want, _ := netip.ParseAddr(c.want); got != want {
				t.Errorf("%v, want %v", got, want)
			}

			if addressesOnUplink(c.h, c.s) != c.misplaced {
				t.Errorf("misplaced is %t", !c.misplaced)
			}
		})
	}
}

// TestMoves undoes every attempt. Each may have interrupted the host's network for a while.
func TestMoveAttempts(t *testing.T) {
	var m moveAttempts

	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

	var at []time.Duration

	for now := start; now.Before(start.Add(24 * time.Hour)); now = now.Add(5 * time.Second) {
		if m.start(now) == nil {
			at = append(at, now.Sub(start))
		}
	}

	if len(at) < 20 || len(at) > 40 || at[0] != 0 || at[1] != time.Minute || at[2] != 3*time.Minute {
		t.Errorf("attempts at %v", at)
	}
}
