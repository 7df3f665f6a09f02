package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// syncNetworks sets the table of networks to exactly those of c. Entries that make an address
// internal are added last and deleted first, so meanwhile too few packets are dropped, never too
// many.
func (g *Gateway) syncNetworks(c Config) error {
	if err := g.changeNetworks(c); err != nil {
		return fmt.Errorf("sync networks: %w", err)
	}

	return nil
}

func (g *Gateway) changeNetworks(c Config) error {
	const internal, external = gatewayNetworkNETWORK_INTERNAL, gatewayNetworkNETWORK_EXTERNAL

	// The digest must cover the table: bits are added before entries and removed after them.
	if err := g.digest.addNetworks(c.Internal); err != nil {
		return err
	}

	want := networkEntries(c)

	for _, kind := range []gatewayNetwork{external, internal} {
		if err := putNetworks(g.objs.Networks, want, uint8(kind)); err != nil {
			return err
		}
	}

	for _, kind := range []gatewayNetwork{internal, external} {
		if err := pruneNetworks(g.objs.Networks, want, uint8(kind)); err != nil {
			return err
		}
	}

	return g.digest.setNetworks(c.Internal)
}

// networkEntries returns the table for c. A network of both kinds is external.
func networkEntries(c Config) map[gatewayNetworkKey]uint8 {
	want := make(map[gatewayNetworkKey]uint8)
	for _, p := range c.Internal {
		want[networkKey(p)] = uint8(gatewayNetworkNETWORK_INTERNAL)
	}

	for _, p := range c.External {
		want[networkKey(p)] = uint8(gatewayNetworkNETWORK_EXTERNAL)
	}

	return want
}

// networkKey returns the key of a prefix. IPv4 is stored inside ::ffff:0:0/96.
func networkKey(p netip.Prefix) gatewayNetworkKey {
	k := gatewayNetworkKey{Bits: uint32(p.Bits()), Addr: gatewayAddr{W: words(p.Masked().Addr())}}
	if p.Addr().Is4() {
		k.Bits += 96
	}

	return k
}

// prefix is the inverse of networkKey.
func (k gatewayNetworkKey) prefix() netip.Prefix {
	a := addrOf(k.Addr.W)
	if a.Is4() {
		return netip.PrefixFrom(a, int(k.Bits)-96)
	}

	return netip.PrefixFrom(a, int(k.Bits))
}

// putNetworks writes the wanted entries of a kind.
func putNetworks(m *ebpf.Map, want map[gatewayNetworkKey]uint8, kind uint8) error {
	for k, v := range want {
		if v != kind {
			continue
		}

		if err := m.Put(k, v); err != nil {
			return err
		}
	}

	return nil
}

// pruneNetworks deletes unwanted entries of a kind.
func pruneNetworks(m *ebpf.Map, want map[gatewayNetworkKey]uint8, kind uint8) error {
	_, err := deleteEntries(m, func(k gatewayNetworkKey, v uint8) bool {
		_, ok := want[k]
		return !ok && v == kind
	})

	return err
}

// readNetworks returns the contents of the table, sorted.
func readNetworks(m *ebpf.Map) (internal, external []netip.Prefix, err error) {
	err = eachEntry(m, func(k gatewayNetworkKey, v uint8) {
		if v == uint8(gatewayNetworkNETWORK_INTERNAL) {
			internal = append(internal, k.prefix())
		} else {
			external = append(external, k.prefix())
		}
	})

	slices.SortFunc(internal, netip.Prefix.Compare)
	slices.SortFunc(external, netip.Prefix.Compare)

	return internal, external, err
}

// internalBits are the digests of internal networks, which the programs read for each packet: see
// may_be_internal4 and may_be_internal6 in prefix.h. A network has the bits of all of its
// addresses. Networks that differ only after the index share bits.
type internalBits struct {
	v4 [portWords]uint64 // indexed by the first 16 bits, as the programs load them from memory
	v6 [hostWords]uint64 // indexed by a hash of the first 48 bits
}

const (
	bits4 = 16 // bits of an IPv4 address in the index
	bits6 = 48 // the same for IPv6
	// A shorter IPv6 prefix has so many hashes that all bits are set. Every packet is then looked up.
	shortest6 = 40
)

// add sets the bits of every address in p.
func (b *internalBits) add(p netip.Prefix) {
	p = p.Masked()
	if p.Addr().Is4() {
		b.add4(p)
	} else {
		b.add6(p)
	}
}

func (b *internalBits) add4(p netip.Prefix) {
	a := p.Addr().As4()

	first := binary.BigEndian.Uint16(a[:])
	for i := range 1 << max(bits4-p.Bits(), 0) {
		setBit(b.v4[:], bePort(first+uint16(i)))
	}
}

func (b *internalBits) add6(p netip.Prefix) {
	if p.Bits() < shortest6 {
		for i := range b.v6 {
			b.v6[i] = ^uint64(0)
		}

		return
	}

	// The bits of the index that p leaves open are all in its last byte.
	for i := range 1 << max(bits6-p.Bits(), 0) {
		a := p.Addr().As16()
		a[bits6/8-1] |= byte(i)
		w := words(netip.AddrFrom16(a))
		setBit(b.v6[:], hash(w[0]^w[1]<<16))
	}
}
