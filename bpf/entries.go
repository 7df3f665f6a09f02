package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Keys are the table keys that the rules may look up for a packet. Each field is for the field of
// verdict.Tables after it.
type Keys struct {
	Addrs     []netip.Addr         // Addrs
	Services  []verdict.ServiceKey // Services
	Exchanges []verdict.NSKey      // NS
	Datagrams []verdict.FragKey    // Frags
	Flows     []verdict.FlowKey    // Flows
	Protos    []verdict.NSKey      // HostProtos
	Ports     []SocketKey          // Entries.Gated
}

// Entries are the entries of the attached programs' tables under Keys. With them, the model can
// decide a live packet. Times are those of the last use, on CLOCK_MONOTONIC. The functions of
// Tables, and its shortcuts, are not set.
type Entries struct {
	verdict.Tables
	Gated map[SocketKey]bool // ports that a host socket may use, see Gate
}

// Entries reads the entries under k. It reads the tables directly, without the bitmaps that save
// the programs a lookup. A key without an entry is missing in the result.
func (e *Explainer) Entries(k Keys) (Entries, error) {
	var (
		out  Entries
		errs [7]error
	)

	maps := e.coll.Maps
	out.Addrs, errs[0] = lookUp(maps["host_addrs"], k.Addrs,
		func(a netip.Addr) gatewayAddr { return gatewayAddr{W: words(a)} },
		func(v uint8) verdict.AddrKind { return verdict.AddrKind(v) })
	out.Services, errs[1] = lookUp(maps["services"], k.Services, serviceCell,
		func(v uint8) verdict.ServiceOwner { return verdict.ServiceOwner(v) })
	out.NS, errs[2] = lookUp(maps["ns"], k.Exchanges, exchangeCell, gatewaySeen.at)
	out.Frags, errs[3] = lookUp(maps["frags"], k.Datagrams, datagramCell, gatewayFragSeen.fragmented)
	out.Flows, errs[4] = lookUp(maps["takeover"], k.Flows, flowCell, gatewaySeen.at)
	out.HostProtos, errs[5] = lookUp(maps["host_protos"], k.Protos, exchangeCell, func(uint8) bool { return true })
	out.Gated, errs[6] = readGates(maps["host_sockets"], k.Ports)

	if err := errors.Join(errs[:]...); err != nil {
		return Entries{}, fmt.Errorf("read table entries: %w", err)
	}

	return out, nil
}

// lookUp returns the entries of m, a map of K to V, under keys. cell and value convert from and to
// the types of package verdict.
func lookUp[Key comparable, Value, K, V any](
	m *ebpf.Map,
	keys []Key,
	cell func(Key) K,
	value func(V) Value,
) (map[Key]Value, error) {
	out := make(map[Key]Value)

	for _, key := range keys {
		var v V

		err := m.Lookup(cell(key), &v)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}

		if err != nil {
			return nil, err
		}

		out[key] = value(v)
	}

	return out, nil
}

// readGates returns the ports that a host socket may have, see Gate.
func readGates(m *ebpf.Map, ports []SocketKey) (map[SocketKey]bool, error) {
	out := make(map[SocketKey]bool)
	if len(ports) == 0 {
		return out, nil
	}

	var bits gatewayPortBits
	if err := m.Lookup(uint32(0), &bits); err != nil {
		return nil, err
	}

	for _, p := range ports {
		bitmap := &bits.Tcp
		if p.Proto == protoUDP {
			bitmap = &bits.Udp
		}

		if bitmap[p.Port/64]>>(p.Port%64)&1 == 1 {
			out[p] = true
		}
	}

	return out, nil
}

func (s gatewaySeen) at() time.Duration { return time.Duration(s.Ns) }

// fragmentOwners are the verdicts for enum frag_owner of types.h.
var fragmentOwners = [...]verdict.Verdict{
	gatewayFragOwnerFRAG_HOST:    verdict.Host,
	gatewayFragOwnerFRAG_OVN:     verdict.OVN,
	gatewayFragOwnerFRAG_BOTH:    verdict.Both,
	gatewayFragOwnerFRAG_DROPPED: verdict.Drop,
}

func (s gatewayFragSeen) fragmented() verdict.Fragmented {
	return verdict.Fragmented{Owner: fragmentOwners[s.Owner], Seen: time.Duration(s.Ns)}
}

// exchangeCell returns k in the format of the programs.
func exchangeCell(k verdict.NSKey) gatewayNsKey {
	return gatewayNsKey{Remote: gatewayAddr{W: words(k.Remote)}, Id: bePort(k.ID), Proto: k.Proto}
}

// datagramCell returns k in the format of the programs. The ID is in network byte order. IPv4's has
// only two bytes: the first two of the four bytes in memory.
func datagramCell(k verdict.FragKey) gatewayFragKey {
	id := k.ID
	if k.Src.Is4() {
		id <<= 16
	}

	return gatewayFragKey{
		Src: gatewayAddr{W: words(k.Src)}, Dst: gatewayAddr{W: words(k.Dst)}, Proto: k.Proto,
		Id: binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, id)),
	}
}
