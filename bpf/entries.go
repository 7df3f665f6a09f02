package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// ExchangeKey is an exchange of OVN without ports: ICMP echo with its identifier, other protocols
// with ID 0.
type ExchangeKey struct {
	Remote netip.Addr
	Proto  uint8
	ID     uint16
}

// DatagramKey is a fragmented datagram. Proto is 0 for IPv6.
type DatagramKey struct {
	Src, Dst netip.Addr
	Proto    uint8
	ID       uint32
}

// FragmentOwner is the receiver of a first fragment.
type FragmentOwner uint8

const (
	FragmentHost    FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_HOST)
	FragmentOVN     FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_OVN)
	FragmentBoth    FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_BOTH)
	FragmentDropped FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_DROPPED)
)

// Datagram is the state of a fragmented datagram.
type Datagram struct {
	To   FragmentOwner // receiver of its first fragment
	Seen time.Duration // time of the first fragment, on CLOCK_MONOTONIC
}

// Keys are the table keys that the rules may look up for a packet.
type Keys struct {
	Addrs     []netip.Addr
	Services  []ServiceKey
	Exchanges []ExchangeKey
	Datagrams []DatagramKey
	Flows     []FlowKey
	Protos    []NSKey
	Ports     []SocketKey
}

// Entries are the entries of the attached programs' tables under Keys. Times are those of the last
// use, on CLOCK_MONOTONIC.
type Entries struct {
	Addrs     map[netip.Addr]AddrKind
	Services  map[ServiceKey]ServiceOwner
	Exchanges map[ExchangeKey]time.Duration
	Datagrams map[DatagramKey]Datagram
	Takeover  map[FlowKey]time.Duration
	Protos    map[NSKey]bool
	Gated     map[SocketKey]bool
}

// Entries reads the tables directly, without the bitmaps that save the programs a lookup.
func (e *Explainer) Entries(k Keys) (Entries, error) {
	var (
		out  Entries
		errs [6]error
	)

	maps := e.coll.Maps
	out.Addrs, errs[0] = lookUp(maps["host_addrs"], k.Addrs,
		func(a netip.Addr) gatewayAddr { return gatewayAddr{W: words(a)} },
		func(v uint8) AddrKind { return AddrKind(v) })
	out.Services, errs[1] = lookUp(maps["services"], k.Services, ServiceKey.cell,
		func(v uint8) ServiceOwner { return ServiceOwner(v) })
	out.Exchanges, errs[2] = lookUp(maps["ns"], k.Exchanges, ExchangeKey.cell, gatewaySeen.at)
	out.Datagrams, errs[3] = lookUp(maps["frags"], k.Datagrams, DatagramKey.cell,
		func(v gatewayFragSeen) Datagram {
			return Datagram{To: FragmentOwner(v.Owner), Seen: time.Duration(v.Ns)}
		})
	out.Takeover, errs[4] = lookUp(maps["takeover"], k.Flows, FlowKey.cell, gatewaySeen.at)
	out.Protos, errs[5] = lookUp(maps["host_protos"], k.Protos, NSKey.cell, func(uint8) bool { return true })

	err := errors.Join(errs[:]...)
	if err == nil {
		out.Gated, err = readGates(maps["host_sockets"], k.Ports)
	}

	if err != nil {
		return Entries{}, fmt.Errorf("read table entries: %w", err)
	}

	return out, nil
}

// lookUp returns the entries of m, a map of K to V, under keys.
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
		of := &bits.Tcp
		if p.Proto == protoUDP {
			of = &bits.Udp
		}

		if of[p.Port/64]>>(p.Port%64)&1 == 1 {
			out[p] = true
		}
	}

	return out, nil
}

func (s gatewaySeen) at() time.Duration { return time.Duration(s.Ns) }

func (k ExchangeKey) cell() gatewayNsKey {
	return gatewayNsKey{Remote: gatewayAddr{W: words(k.Remote)}, Id: bePort(k.ID), Proto: k.Proto}
}

func (k NSKey) cell() gatewayNsKey { return ExchangeKey{Remote: k.Remote, Proto: k.Proto}.cell() }

func (k DatagramKey) cell() gatewayFragKey {
	id := k.ID
	if k.Src.Is4() {
		id <<= 16 // the first two of the four bytes
	}

	return gatewayFragKey{
		Src: gatewayAddr{W: words(k.Src)}, Dst: gatewayAddr{W: words(k.Dst)}, Proto: k.Proto,
		Id: binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, id)),
	}
}
