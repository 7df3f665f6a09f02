package bpf

import (
	"errors"
	"math/bits"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
)

const (
	bfdPort   = 3784 // RFC 5881
	portWords = 1024 // PORT_WORDS in types.h
	hostWords = 64   // HOST_WORDS in types.h
)

// digest keeps the bitmaps that save the programs table lookups. A set bit means that a table may
// have an entry. A clear bit means that it has none. So bits are set before entries are written,
// and cleared after entries are deleted. maps.h has the bitmaps, as global variables of the
// programs.
type digest struct {
	ports, hosts, former *ebpf.Variable // special_ports, host_digest, has_former
	internal4, internal6 *ebpf.Variable

	mu        sync.Mutex     // guards the fields below, and the order of writes
	services  map[uint16]int // number of entries in services, by port
	takeover  map[uint16]int // number of entries in takeover, by local port
	bfd       bool           // BFD is on
	nodes     []netip.Addr   // addresses of the node in the configuration
	addrs     []netip.Addr   // the host's addresses in host_addrs
	hasFormer bool           // host_addrs has a former address
	networks  []netip.Prefix // internal networks in networks
	written   *internalBits  // nil before the first write
}

func newDigest(v *gatewayVariables) *digest {
	return &digest{
		ports:     v.SpecialPorts,
		hosts:     v.HostDigest,
		former:    v.HasFormer,
		internal4: v.Internal4,
		internal6: v.Internal6,
		services:  map[uint16]int{},
		takeover:  map[uint16]int{},
	}
}

// configure sets the bits for the configuration.
func (d *digest) configure(c Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.bfd, d.nodes = c.BFD, nil
	for _, a := range []netip.Addr{c.Node4, c.Node6} {
		if a.IsValid() {
			d.nodes = append(d.nodes, a)
		}
	}

	if err := d.writePorts(); err != nil {
		return err
	}

	return d.writeHosts(nil, d.hasFormer)
}

// addHosts temporarily adds host addresses to the last set. former reports that the table gets a
// former address.
func (d *digest) addHosts(more []netip.Addr, former bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.writeHosts(more, former || d.hasFormer)
}

// setHosts replaces the host addresses.
func (d *digest) setHosts(addrs []netip.Addr, former bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.addrs, d.hasFormer = addrs, former

	return d.writeHosts(nil, former)
}

// addNetworks temporarily adds internal networks to the last set.
func (d *digest) addNetworks(more []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.writeNetworks(more)
}

// setNetworks replaces the internal networks.
func (d *digest) setNetworks(networks []netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.networks = networks

	return d.writeNetworks(nil)
}

func (d *digest) writeNetworks(more []netip.Prefix) error {
	var b internalBits

	for _, list := range [][]netip.Prefix{d.networks, more} {
		for _, p := range list {
			b.add(p)
		}
	}

	if d.written != nil && *d.written == b {
		return nil
	}

	if err := errors.Join(d.internal4.Set(&b.v4), d.internal6.Set(&b.v6)); err != nil {
		return err
	}

	d.written = &b

	return nil
}

// countServices adds delta, by port, to the numbers of entries in the table of services.
func (d *digest) countServices(delta map[uint16]int) error { return d.count(d.services, delta) }

// countTakeover is countServices for the table of connections in takeover, by local port.
func (d *digest) countTakeover(delta map[uint16]int) error { return d.count(d.takeover, delta) }

// count adds delta to the numbers of entries of each port, and writes the bits if one changes.
func (d *digest) count(entries, delta map[uint16]int) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	changed := false

	for port, n := range delta {
		if n == 0 {
			continue
		}

		before := entries[port]
		after := before + n

		entries[port] = after
		if after <= 0 {
			delete(entries, port)
		}

		changed = changed || before == 0 || after <= 0
	}

	if !changed {
		return nil
	}

	return d.writePorts()
}

// writePorts sets exactly the bits of ports in use.
func (d *digest) writePorts() error {
	var words [portWords]uint64
	for port := range d.services {
		setBit(words[:], port)
	}

	for port := range d.takeover {
		setBit(words[:], port)
	}

	if d.bfd {
		setBit(words[:], uint16(bfdPort))
	}

	return d.ports.Set(&words)
}

// writeHosts sets exactly the bits of the host's addresses, including more.
func (d *digest) writeHosts(more []netip.Addr, former bool) error {
	var words [hostWords]uint64

	for _, list := range [][]netip.Addr{d.nodes, d.addrs, more} {
		for _, a := range list {
			setBit(words[:], hostBit(a))
		}
	}

	return errors.Join(d.former.Set(flag(former)), d.hosts.Set(&words))
}

// hostBit returns the number of the bit that may_be_host in maps.h tests for an address.
func hostBit(a netip.Addr) uint32 {
	w := words(a)
	if a.Is4() {
		return hash(w[3])
	}

	return hash(w[0] ^ w[1] ^ w[2] ^ w[3])
}

// hash returns the number of a bit in a digest of hostWords words: the upper bits of a
// multiplicative hash. The programs compute the same.
func hash(x uint32) uint32 { return x * 0x9e3779b1 >> (32 - bits.TrailingZeros(hostWords*64)) }

func setBit[N uint16 | uint32](words []uint64, bit N) { words[bit/64] |= 1 << (bit % 64) }
