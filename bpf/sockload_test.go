package bpf

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// TestSock_complexity limits the instructions that the verifier inspects. Exceeding it needs a
// justification; the verifier stops at a million.
func TestSock_complexity(t *testing.T) {
	for _, object := range []struct {
		load  func() (*ebpf.CollectionSpec, error)
		limit uint32
	}{{loadSock, 15000}, {loadGate, 500}, {loadLookup, 5000}} {
		for name, n := range verified(t, object.load) {
			checkComplexity(t, name, n, object.limit)
		}
	}
}

// TestSock_scale: 10,000 services of two ports with 50,000 endpoints in all.
func TestSock_scale(t *testing.T) {
	h := &sockHost{pinDir: newPinDir(t)}

	s, err := OpenSock(CgroupOptions{PinDir: h.pinDir, CgroupPath: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	services := make([]SockService, 10000)
	for i := range services {
		ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})

		var backends []netip.AddrPort
		for j := range 5 {
			backends = append(backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 + j), byte(i >> 8), byte(i)}), 8080))
		}

		services[i] = SockService{Key: fmt.Sprint("ns/", i), Ports: []SockPort{
			{Frontends: []netip.AddrPort{netip.AddrPortFrom(ip, 80), netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(20000+i))}, Proto: protoTCP, Backends: backends},
			{Frontends: []netip.AddrPort{netip.AddrPortFrom(ip, 443), netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+i))}, Proto: protoTCP, Backends: backends},
		}}
	}

	if writes, err := s.SyncServices(services); err != nil || writes != 140000 {
		t.Fatalf("first sync: %d writes, %v", writes, err)
	}

	start := time.Now()

	writes, err := s.SyncServices(services)
	if err != nil || writes != 0 {
		t.Errorf("second sync: %d writes, %v", writes, err)
	}

	t.Logf("second sync: %v", time.Since(start))
	start = time.Now()

	services[5000].Ports[0].Backends = services[5000].Ports[0].Backends[1:]
	if writes, err := s.UpdateServices(services[5000:5001]); err != nil || writes != 1+2+1 {
		t.Errorf("one endpoint less: %d writes, %v", writes, err)
	}

	t.Logf("one endpoint less: %v", time.Since(start))

	tables := s.objs.sockMaps
	for _, m := range []*ebpf.Map{
		tables.SockFrontends,
		tables.SockBackends,
		tables.SockAddrs,
		tables.SockAffinity,
		tables.SockConnected,
		tables.SockExchanges,
		tables.SockExempt,
		tables.SockPeers,
	} {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}

		if size, ok := info.Memlock(); ok {
			t.Logf("%s: %d KiB", info.Name, size/1024)
		}
	}
}
