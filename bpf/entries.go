package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// ExchangeKey is an exchange of OVN's without ports: ICMP echo by its identifier,
// other protocols with ID 0.
type ExchangeKey struct {
	Remote netip.Addr
	Proto  uint8
	ID     uint16
}

// DatagramKey is a datagram in fragments. Proto is 0 with IPv6.
type DatagramKey struct {
	Src, Dst netip.Addr
	Proto    uint8
	ID       uint32
}

// FragmentOwner is who got a first fragment.
type FragmentOwner uint8

const (
	FragmentHost    FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_HOST)
	FragmentOVN     FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_OVN)
	FragmentBoth    FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_BOTH)
	FragmentDropped FragmentOwner = FragmentOwner(gatewayFragOwnerFRAG_DROPPED)
)

// Datagram is what is known of one.
type Datagram struct {
	To   FragmentOwner // who got its first fragment
	Seen time.Duration // when, on CLOCK_MONOTONIC
}

// Keys are what a packet may be asked for by.
type Keys struct {
	Addrs     []netip.Addr
	Services  []ServiceKey
	Exchanges []ExchangeKey
	Datagrams []DatagramKey
	Flows     []FlowKey
	Protos    []NSKey
	Ports     []SocketKey
}

// Entries are what the tables of the attached programs have under Keys. Times are
// when an entry was last used, on CLOCK_MONOTONIC.
type Entries struct {
	Addrs     map[netip.Addr]AddrKind
	Services  map[ServiceKey]ServiceOwner
	Exchanges map[ExchangeKey]time.Duration
	Datagrams map[DatagramKey]Datagram
	Takeover  map[FlowKey]time.Duration
	Protos    map[NSKey]bool
	Gated     map[SocketKey]bool
}

// Entries reads the tables themselves, without the bitmaps by which the programs
// save themselves a lookup.
func (e *Explainer) Entries(k Keys) (Entries, error) {
	var out Entries
	var errs [6]error
	maps := e.coll.Maps
	out.Addrs, errs[0] = lookUp(maps["host_addrs"], k.Addrs,
		func(a netip.Addr) gatewayAddr { return gatewayAddr{W: words(a)} }, func(v uint8) AddrKind { return AddrKind(v) })
	out.Services, errs[1] = lookUp(maps["services"], k.Services, ServiceKey.cell, func(v uint8) ServiceOwner { return ServiceOwner(v) })
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

// lookUp reads what m, of K to V, has under keys.
func lookUp[Key comparable, Value, K, V any](m *ebpf.Map, keys []Key, cell func(Key) K, value func(V) Value) (map[Key]Value, error) {
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
		id <<= 16 // it is the first two of the four bytes
	}
	return gatewayFragKey{
		Src: gatewayAddr{W: words(k.Src)}, Dst: gatewayAddr{W: words(k.Dst)}, Proto: k.Proto,
		Id: binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, id)),
	}
}
