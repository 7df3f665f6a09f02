package bpf

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The C side asserts the same sizes.
func TestGateway_sizesOfStructs(t *testing.T) {
	spec, err := loadGateway()
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		what            string
		goSize, mapSize uint32
	}{
		{"config", uint32(unsafe.Sizeof(gatewayConfig{})), spec.Maps[".data.config"].ValueSize},
		{"special ports", 1024 * 8, spec.Maps[".data.ports"].ValueSize},
		{"service key", uint32(unsafe.Sizeof(gatewayServiceKey{})), spec.Maps["services"].KeySize},
		{"ns key", uint32(unsafe.Sizeof(gatewayNsKey{})), spec.Maps["ns"].KeySize},
		{"ns value", uint32(unsafe.Sizeof(gatewaySeen{})), spec.Maps["ns"].ValueSize},
		{"fragment key", uint32(unsafe.Sizeof(gatewayFragKey{})), spec.Maps["frags"].KeySize},
		{"fragment value", uint32(unsafe.Sizeof(gatewayFragSeen{})), spec.Maps["frags"].ValueSize},
		{"network key", uint32(unsafe.Sizeof(gatewayNetworkKey{})), spec.Maps["networks"].KeySize},
		{"internal networks", uint32(unsafe.Sizeof(internalBits{})), spec.Maps[".data.nets"].ValueSize},
		{"host digest and has_former", hostWords*8 + 1, spec.Maps[".data.hosts"].ValueSize},
		{"flow key", uint32(unsafe.Sizeof(gatewayFlowKey{})), spec.Maps["takeover"].KeySize},
		{"flow value", uint32(unsafe.Sizeof(gatewaySeen{})), spec.Maps["takeover"].ValueSize},
		{"address", uint32(unsafe.Sizeof(gatewayAddr{})), spec.Maps["host_addrs"].KeySize},
		{"port bits", uint32(unsafe.Sizeof(gatewayPortBits{})), spec.Maps["host_sockets"].ValueSize},
		{"shortcut key", uint32(unsafe.Sizeof(gatewayShortcutKey{})), spec.Maps["shortcuts"].KeySize},
		{"shortcut", uint32(unsafe.Sizeof(gatewayShortcut{})), spec.Maps["shortcuts"].ValueSize},
		{"shortcut counts", uint32(unsafe.Sizeof(gatewayShortcutCounts{})), spec.Maps["shortcut_counts"].ValueSize},
		{"pod port", uint32(unsafe.Sizeof(gatewayPodPort{})), spec.Maps["short_pods"].ValueSize},
		{"pod cell", uint32(unsafe.Sizeof(gatewayPodCell{})), spec.Maps["pod_received"].ValueSize},
		{"cells", uint32(unsafe.Sizeof(gatewayCells{})), spec.Maps["counters"].ValueSize},
		{"reasons", uint32(verdict.ReasonCount * 16), spec.Maps["counters"].ValueSize},
	} {
		if tt.goSize != tt.mapSize {
			t.Errorf("%s: %d bytes in Go, %d in C", tt.what, tt.goSize, tt.mapSize)
		}
	}
}

// Fields at their C offsets, which the compiler cannot check.
func TestGateway_offsetsOfFields(t *testing.T) {
	var c gatewayConfig
	for _, tt := range []struct {
		field     string
		got, want uintptr
	}{
		{"uplink", unsafe.Offsetof(c.Uplink), 8},
		{"node4", unsafe.Offsetof(c.Node4), 16},
		{"geneve_port", unsafe.Offsetof(c.GenevePort), 24},
		{"vlan", unsafe.Offsetof(c.Vlan), 26},
		{"mtu", unsafe.Offsetof(c.Mtu), 28},
		{"has_encap", unsafe.Offsetof(c.HasEncap), 32},
		{"node4_mapped", unsafe.Offsetof(c.Node4Mapped), 48},
		{"gr_lla", unsafe.Offsetof(c.GrLla), 96},
		{"svc4", unsafe.Offsetof(c.Svc4), 112},
		{"tunnel4", unsafe.Offsetof(c.Tunnel4), 240},
		{"masq6", unsafe.Offsetof(c.Masq6), 656},
		{"tunnel6", unsafe.Offsetof(c.Tunnel6), 784},
		{"end", unsafe.Sizeof(c), 912},
	} {
		if tt.got != tt.want {
			t.Errorf("config.%s at %d, want %d", tt.field, tt.got, tt.want)
		}
	}
}

// Exactly the state that must survive the agent is pinned.
func TestGateway_pinnedMaps(t *testing.T) {
	spec, err := loadGateway()
	if err != nil {
		t.Fatal(err)
	}

	pinned := map[string]bool{
		"counters": true, "ns": true, "frags": true, "services": true, "host_addrs": true,
		"host_sockets": true, "takeover": true, "host_protos": true, "networks": true, "lookup_targets": true,
		"shortcuts": true, "shortcut_epoch": true, "shortcut_counts": true, "short_pods": true, "pod_received": true, "slots": true,
	}
	for name, m := range spec.Maps {
		if got := m.Pinning == ebpf.PinByName; got != pinned[name] {
			t.Errorf("map %s pinned: %t", name, got)
		}
	}
}
