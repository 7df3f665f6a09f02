package bpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict"
)

// liveConfig is the configuration that g's programs run with.
func liveConfig(t testing.TB, g *Gateway) *verdict.Config {
	t.Helper()
	var cell gatewayConfig
	if err := g.objs.Cfg.Get(&cell); err != nil {
		t.Fatal(err)
	}
	c := &verdict.Config{
		Connected: cell.Uplink != 0 && cell.Bridge != 0,
		NodeMAC:   verdict.MAC(binary.NativeEndian.AppendUint64(nil, cell.NodeMac)[:6]),
		SNATFirst: cell.SnatFirst, SNATLast: cell.SnatFirst + cell.SnatSpan, GenevePort: cell.GenevePort,
	}
	if cell.Node4 != 0 {
		c.Node4 = address(cell.Node4Mapped.W)
	}
	if cell.HasNode6 != 0 {
		c.Node6 = address(cell.Node6.W)
	}
	if cell.HasEncap != 0 {
		c.EncapIP = address(cell.Encap.W)
	}
	for _, p := range cell.Svc4[:cell.Svc4Count] {
		c.ServiceCIDRs = append(c.ServiceCIDRs, prefix4(p.Net, p.Mask))
	}
	for _, p := range cell.Svc6[:cell.Svc6Count] {
		c.ServiceCIDRs = append(c.ServiceCIDRs, prefix6(p.Net.W, p.Mask.W))
	}
	for _, p := range cell.Pod4[:cell.Pod4Count] {
		c.PodCIDRs = append(c.PodCIDRs, prefix4(p.Net, p.Mask))
	}
	for _, p := range cell.Pod6[:cell.Pod6Count] {
		c.PodCIDRs = append(c.PodCIDRs, prefix6(p.Net.W, p.Mask.W))
	}
	return c
}

func prefix4(net, mask uint32) netip.Prefix {
	a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, net)))
	return netip.PrefixFrom(a, bits.OnesCount32(mask))
}

func prefix6(net, mask [4]uint32) netip.Prefix {
	n := 0
	for _, w := range mask {
		n += bits.OnesCount32(w)
	}
	return netip.PrefixFrom(address(net), n)
}

// address is the other way of words.
func address(w [4]uint32) netip.Addr {
	var b []byte
	for _, v := range w {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return netip.AddrFrom16([16]byte(b)).Unmap()
}

// liveTables is what g's tables hold, but for the host's sockets.
func liveTables(t testing.TB, g *Gateway) *verdict.Tables {
	t.Helper()
	tables := &verdict.Tables{
		HostAddrs: make(map[netip.Addr]bool), Services: make(map[verdict.ServiceKey]bool),
		NS: make(map[verdict.NSKey]time.Duration), Frags: make(map[verdict.FragKey]time.Duration),
	}
	entries(t, g.objs.HostAddrs, func(k gatewayAddr, _ uint8) { tables.HostAddrs[address(k.W)] = true })
	entries(t, g.objs.Services, func(k gatewayServiceKey, _ uint8) {
		tables.Services[verdict.ServiceKey{Addr: address(k.Addr.W), Proto: k.Proto, Port: bePort(k.Port)}] = true
	})
	entries(t, g.objs.Ns, func(k gatewayNsKey, s gatewaySeen) {
		tables.NS[verdict.NSKey{Remote: address(k.Remote.W), Proto: k.Proto, ID: bePort(k.Id)}] = time.Duration(s.Ns)
	})
	entries(t, g.objs.Frags, func(k gatewayFragKey, s gatewaySeen) {
		id := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, k.Id))
		if address(k.Src.W).Is4() {
			id >>= 16 // it is the first two of the four bytes
		}
		tables.Frags[verdict.FragKey{Src: address(k.Src.W), Dst: address(k.Dst.W), Proto: k.Proto, ID: id}] = time.Duration(s.Ns)
	})
	return tables
}

func entries[K, V any](t testing.TB, m *ebpf.Map, f func(K, V)) {
	t.Helper()
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		f(k, v)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
}

func gateOpen(t testing.TB, g *Gateway, s verdict.Socket) bool {
	t.Helper()
	var gate gatewayPortBits
	if err := g.objs.HostSockets.Lookup(uint32(0), &gate); err != nil {
		t.Fatal(err)
	}
	words, port := &gate.Udp, s.Local.Port()
	if s.Proto == protoTCP {
		words = &gate.Tcp
	}
	return words[port/64]>>(port%64)&1 == 1
}

func monotonic(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
