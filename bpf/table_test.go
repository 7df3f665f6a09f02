package bpf

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// One changed Service costs what differs, however many there are.
func TestGateway_UpdateServices(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	all := make(map[verdict.ServiceKey]verdict.ServiceOwner)
	for i := range 20000 {
		all[verdict.ServiceKey{Addr: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Proto: protoTCP, Port: uint16(30000 + i%1000)}] = verdict.ServiceOVN
	}

	if err := g.SyncServices(all); err != nil {
		t.Fatal(err)
	}

	key := func(port uint16) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: v4.node, Proto: protoTCP, Port: port}
	}
	syn := func(port uint16) []byte { return v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, port, flagSYN)) }

	type change struct {
		name   string
		add    map[verdict.ServiceKey]verdict.ServiceOwner
		remove []verdict.ServiceKey
		writes int
		want   map[uint16]string
	}
	for _, c := range []change{
		{"two new", map[verdict.ServiceKey]verdict.ServiceOwner{key(31000): verdict.ServiceOVN, key(31001): verdict.ServiceHost}, nil, 2, map[uint16]string{31000: "service", 31001: "service_host"}},
		{"the same again", map[verdict.ServiceKey]verdict.ServiceOwner{key(31000): verdict.ServiceOVN, key(31001): verdict.ServiceHost}, nil, 0, map[uint16]string{31000: "service"}},
		{"another owner", map[verdict.ServiceKey]verdict.ServiceOwner{key(31000): verdict.ServiceHost}, nil, 1, map[uint16]string{31000: "service_host"}},
		{"one for another", map[verdict.ServiceKey]verdict.ServiceOwner{key(31002): verdict.ServiceOVN}, []verdict.ServiceKey{key(31000)}, 2, map[uint16]string{31000: "default", 31002: "service"}},
		{"added and removed: added", map[verdict.ServiceKey]verdict.ServiceOwner{key(31002): verdict.ServiceOVN}, []verdict.ServiceKey{key(31002)}, 0, map[uint16]string{31002: "service"}},
		{"an absent entry", nil, []verdict.ServiceKey{key(31000)}, 0, map[uint16]string{31000: "default"}},
		{"the last", nil, []verdict.ServiceKey{key(31001), key(31002)}, 2, map[uint16]string{31001: "default", 31002: "default"}},
	} {
		writes, err := g.UpdateServices(c.add, c.remove)
		if err != nil || writes != c.writes {
			t.Errorf("%s: %d writes, %v; want %d", c.name, writes, err, c.writes)
		}

		for port, want := range c.want {
			if got := n.reason(t, g, syn(port)); got[want] != 1 {
				t.Errorf("%s: port %d: %v, want %s", c.name, port, got, want)
			}
		}
	}

	sizes, err := tableSizes(n.pinDir)
	if err != nil || sizes["services"] != len(all) {
		t.Errorf("services %d, %v; want %d", sizes["services"], err, len(all))
	}
}

// A port's bit goes with the last frontend on it, and not before.
func TestDigest_servicePorts(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	bit := func(port uint16) bool {
		var words [1024]uint64
		if err := g.objs.SpecialPorts.Get(&words); err != nil {
			t.Fatal(err)
		}

		return words[port/64]>>(port%64)&1 == 1
	}

	a, b := verdict.ServiceKey{Addr: v4.node, Proto: protoTCP, Port: 31000}, verdict.ServiceKey{Addr: v6.node, Proto: protoTCP, Port: 31000}
	for _, step := range []struct {
		add    map[verdict.ServiceKey]verdict.ServiceOwner
		remove []verdict.ServiceKey
		want   bool
	}{
		{ovns([]verdict.ServiceKey{a, b}), nil, true},
		{nil, []verdict.ServiceKey{a}, true},
		{nil, []verdict.ServiceKey{a}, true}, // not counted twice
		{nil, []verdict.ServiceKey{b}, false},
	} {
		if _, err := g.UpdateServices(step.add, step.remove); err != nil {
			t.Fatal(err)
		}

		if got := bit(31000); got != step.want {
			t.Errorf("after +%v -%v: bit is %t", step.add, step.remove, got)
		}
	}

	if !bit(30080) {
		t.Error("the bit of another port is gone")
	}

	c := n.config()

	c.BFD = true
	if err := g.SetConfig(c); err != nil || !bit(bfdPort) {
		t.Errorf("no bit for BFD: %v", err)
	}
}

// Seeded flows are OVN's until they are drained, also after a restart, and
// packets make them young.
func TestGateway_SeedFlows(t *testing.T) {
	n := newNode(t)
	c := n.config()
	c.Takeover = true
	g := n.open(t, func(o *Options) { o.Config = c })
	flow := func(port uint16) verdict.FlowKey {
		return verdict.FlowKey{Proto: protoTCP, Remote: netip.AddrPortFrom(v4.remote, 443), Local: netip.AddrPortFrom(v4.node, port)}
	}
	packet := func(port uint16, flags uint8) []byte {
		return v4.rx(v4.remote, v4.node, protoTCP, tcp(443, port, flags))
	}

	if err := g.SeedFlows([]verdict.FlowKey{flow(34567), flow(34568)}); err != nil {
		t.Fatal(err)
	}

	old := gatewaySeen{Ns: uint64(monotonic(t) - time.Hour)}
	for _, port := range []uint16{34567, 34568} {
		if err := g.objs.Takeover.Put(flowCell(flow(port)), old); err != nil {
			t.Fatal(err)
		}
	}

	g = n.open(t, func(o *Options) { o.Config = c })
	runTests(t, n, g, []packetTest{
		one("seeded", packet(34567, flagACK), retRedirect, "takeover"),
		one("seeded, a new connection", packet(34567, flagSYN), retNext, "default"),
		one("not seeded", packet(34569, flagACK), retNext, "default"),
	})

	if err := g.SeedFlows([]verdict.FlowKey{flow(34568)}); err != nil {
		t.Fatal(err)
	}

	idle := make(map[verdict.FlowKey]bool)

	err := g.Flows(func(f verdict.FlowKey, age time.Duration) bool {
		idle[f] = age > 30*time.Minute
		return !idle[f]
	})
	if err != nil {
		t.Fatal(err)
	}

	want := map[verdict.FlowKey]bool{flow(34567): false, flow(34568): true}
	if diff := cmp.Diff(want, idle, cmpopts.EquateComparable(verdict.FlowKey{})); diff != "" {
		t.Errorf("idle flows (-want +got):\n%s", diff)
	}

	runTests(t, n, g, []packetTest{
		one("kept", packet(34567, flagACK), retRedirect, "takeover"),
		one("drained", packet(34568, flagACK), retNext, "default"),
	})

	c.Takeover = false
	if err := g.SetConfig(c); err != nil {
		t.Fatal(err)
	}

	runTests(t, n, g, []packetTest{one("takeover has ended", packet(34567, flagACK), retNext, "default")})
}

func TestGateway_SyncAddrs(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	arp := func() []byte { return ether(allMAC, peerMAC, 0x0806, arpPacket(1, v4.remote, v4.vip)) }
	for _, tt := range []struct {
		kind verdict.AddrKind
		want step
	}{
		{verdict.AddrHost, rx(arp(), retNext, "arp_request")},
		{verdict.AddrVIP, rx(arp(), retNext, "arp_vip")},
		{verdict.AddrOVN, rx(arp(), retRedirect, "arp_request_ovn")},
		{verdict.AddrPeer, rx(arp(), retNext, "arp_other")},
	} {
		if err := g.SyncAddrs(map[netip.Addr]verdict.AddrKind{v4.node: verdict.AddrHost, v4.vip: tt.kind}); err != nil {
			t.Fatal(err)
		}

		runStep(t, n, g, int(tt.kind), tt.want)
	}

	if err := g.SyncAddrs(map[netip.Addr]verdict.AddrKind{v4.vip: 0}); err == nil {
		t.Error("no error for an address of no kind")
	}
}

func TestGateway_SyncHostProtos(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	gre := v4.rx(v4.remote, v4.node, protoGRE, make([]byte, 8))
	runStep(t, n, g, 0, tx(v4.tx(v4.node, v4.remote, protoGRE, make([]byte, 8)), retRedirect, "out_learned"))
	runStep(t, n, g, 1, rx(gre, retRedirect, "proto_ns"))

	if err := g.SyncHostProtos(found([]verdict.NSKey{{Remote: v4.remote, Proto: protoGRE}})); err != nil {
		t.Fatal(err)
	}

	runStep(t, n, g, 2, rx(gre, retNext, "proto_host"))

	if err := g.SyncHostProtos(found()); err != nil {
		t.Fatal(err)
	}

	runStep(t, n, g, 3, rx(gre, retRedirect, "proto_ns"))

	t.Log("a scan that fails changes nothing, a scan with more results the second time is repeated")

	failed, scans := errors.New("no netlink"), 0

	err := g.SyncHostProtos(func() ([]verdict.NSKey, error) {
		if scans++; scans == 1 {
			return []verdict.NSKey{{Remote: v4.foreign, Proto: protoGRE}}, nil
		}

		return []verdict.NSKey{{Remote: v4.remote, Proto: protoGRE}}, nil
	})
	if err != nil || scans != 3 {
		t.Errorf("%d scans, error %v; want one more after each that changed the table", scans, err)
	}

	runStep(t, n, g, 4, rx(gre, retNext, "proto_host"))

	if err := g.SyncHostProtos(func() ([]verdict.NSKey, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("sync with a failing scan: %v", err)
	}

	runStep(t, n, g, 5, rx(gre, retNext, "proto_host"))
}

// TestDeleteKeys_skipsMissing checks that missing keys, at any place, do not keep other keys from
// being deleted.
func TestDeleteKeys_skipsMissing(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	for k := range uint32(8) {
		if err := m.Put(k, k); err != nil {
			t.Fatal(err)
		}
	}

	for _, keys := range [][]uint32{nil, {100}, {100, 0, 1, 101, 102, 2, 103}, {3, 4, 5, 6}} {
		if err := deleteKeys(m, keys); err != nil {
			t.Errorf("%d: %v", keys, err)
		}

		for _, k := range keys {
			if err := m.Lookup(k, new(uint32)); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("%d: key %d: %v, want %v", keys, k, err, ebpf.ErrKeyNotExist)
			}
		}
	}

	if err := m.Lookup(uint32(7), new(uint32)); err != nil {
		t.Errorf("a key that was not to be deleted: %v", err)
	}
}

// tableSizes returns the entries of Tables.
func tableSizes(pinDir string) (map[string]int, error) {
	tables, err := Tables(pinDir)

	sizes := make(map[string]int, len(tables))
	for name, t := range tables {
		sizes[name] = t.Entries
	}

	return sizes, err
}
