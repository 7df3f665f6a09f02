package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"
)

const (
	protoTCP = 6
	protoUDP = 17
)

// ServiceKey is a front end that OVN serves: a NodePort on a node address.
type ServiceKey struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// SocketKey is a local port that a socket of the host uses.
type SocketKey struct {
	Proto uint8 // 6 or 17
	Port  uint16
}

// SyncHostAddrs makes the table of the host's addresses hold exactly want. New
// entries are written before stale ones go. It is not atomic: after an error
// it may be repeated.
func (g *Gateway) SyncHostAddrs(want []netip.Addr) error {
	keys := make(map[gatewayAddr]bool, len(want))
	for _, a := range want {
		keys[gatewayAddr{W: words(a)}] = true
	}
	if err := errors.Join(addKeys(g.objs.HostAddrs, keys), pruneKeys(g.objs.HostAddrs, keys)); err != nil {
		return fmt.Errorf("sync host addresses: %w", err)
	}
	return nil
}

// SyncServices makes the service table hold exactly want, as SyncHostAddrs does.
func (g *Gateway) SyncServices(want []ServiceKey) error {
	keys := make(map[gatewayServiceKey]bool, len(want))
	for _, s := range want {
		keys[gatewayServiceKey{Addr: gatewayAddr{W: words(s.Addr)}, Port: bePort(s.Port), Proto: s.Proto}] = true
	}
	// A port's bit only says that the table is worth asking.
	err := addKeys(g.objs.Services, keys)
	if err == nil {
		err = g.objs.ServicePorts.Set(portDigest(keys))
	}
	if err == nil {
		err = pruneKeys(g.objs.Services, keys)
	}
	if err != nil {
		return fmt.Errorf("sync services: %w", err)
	}
	return nil
}

// restoreServicePorts makes the digest of a service table that was there before.
func (g *Gateway) restoreServicePorts() error {
	keys := make(map[gatewayServiceKey]bool)
	err := eachKey[gatewayServiceKey, uint8](g.objs.Services, func(k gatewayServiceKey) { keys[k] = true })
	if err == nil {
		err = g.objs.ServicePorts.Set(portDigest(keys))
	}
	if err != nil {
		return fmt.Errorf("restore service ports: %w", err)
	}
	return nil
}

func portDigest(keys map[gatewayServiceKey]bool) *[1024]uint64 {
	var bits [1024]uint64
	for k := range keys {
		setBit(&bits, bePort(k.Port))
	}
	return &bits
}

func setBit(bits *[1024]uint64, port uint16) { bits[port/64] |= 1 << (port % 64) }

// SyncHostSockets says for exactly which local ports the kernel is asked
// whether a host socket owns a packet. Bits of ports outside the SNAT range
// have no effect. The change is one write.
func (g *Gateway) SyncHostSockets(want []SocketKey) error {
	var bits gatewayPortBits
	for _, s := range want {
		switch s.Proto {
		case protoTCP:
			setBit(&bits.Tcp, s.Port)
		case protoUDP:
			setBit(&bits.Udp, s.Port)
		default:
			return fmt.Errorf("sync host sockets: protocol %d is neither TCP nor UDP", s.Proto)
		}
	}
	if err := g.objs.HostSockets.Put(uint32(0), &bits); err != nil {
		return fmt.Errorf("sync host sockets: %w", err)
	}
	return nil
}

// addKeys writes the keys that m does not have yet.
func addKeys[K comparable](m *ebpf.Map, want map[K]bool) error {
	for k := range want {
		err := m.Update(k, uint8(1), ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return err
		}
	}
	return nil
}

// pruneKeys deletes the keys of m that are not wanted.
func pruneKeys[K comparable](m *ebpf.Map, want map[K]bool) error {
	var stale []K
	err := eachKey[K, uint8](m, func(k K) {
		if !want[k] {
			stale = append(stale, k)
		}
	})
	for _, k := range stale {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return err
}

// eachKey calls f for every key of a hash table of K to V. Keys
// that come or go meanwhile may be missed.
func eachKey[K, V any](m *ebpf.Map, f func(K)) error {
	const batch = 4096
	keys := make([]K, batch)
	values := make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for _, k := range keys[:n] {
			f(k)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// TableSizes returns how many entries the pinned tables have: "ns", "frags"
// and "services". A table that is not there is left out.
func TableSizes(pinDir string) (map[string]int, error) {
	sizes := make(map[string]int)
	err := errors.Join(
		addSize[gatewayNsKey, gatewaySeen](sizes, pinDir, "ns"),
		addSize[gatewayFragKey, gatewaySeen](sizes, pinDir, "frags"),
		addSize[gatewayServiceKey, uint8](sizes, pinDir, "services"),
	)
	if err != nil {
		return nil, fmt.Errorf("count table entries: %w", err)
	}
	return sizes, nil
}

func addSize[K, V any](sizes map[string]int, pinDir, name string) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	n := 0
	err = eachKey[K, V](m, func(K) { n++ })
	sizes[name] = n
	return err
}
