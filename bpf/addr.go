package bpf

import (
	"errors"
	"fmt"
	"net/netip"
)

// AddrKind says whose an address is.
type AddrKind uint8

const (
	AddrHost AddrKind = AddrKind(gatewayAddrKindADDR_HOST) // an address of the host
	AddrVIP  AddrKind = AddrKind(gatewayAddrKindADDR_VIP)  // of a service, which the host may announce
	AddrOVN  AddrKind = AddrKind(gatewayAddrKindADDR_OVN)  // OVN's alone
	AddrPeer AddrKind = AddrKind(gatewayAddrKindADDR_PEER) // another node's
	// AddrFormer was the host's and is not any more: OVN may still use it.
	AddrFormer AddrKind = AddrKind(gatewayAddrKindADDR_FORMER)
)

var addrKindNames = [...]string{AddrHost: "host", AddrVIP: "vip", AddrOVN: "ovn", AddrPeer: "peer", AddrFormer: "former"}

func (k AddrKind) String() string {
	if int(k) < len(addrKindNames) && k != 0 {
		return addrKindNames[k]
	}
	return fmt.Sprintf("address kind %d", uint8(k))
}

// SyncAddrs makes the table of addresses hold exactly want. New and changed
// entries are written before stale ones go. It is not atomic: after an error
// it may be repeated.
func (g *Gateway) SyncAddrs(want map[netip.Addr]AddrKind) error {
	entries := make(map[gatewayAddr]uint8, len(want))
	var hosts []netip.Addr
	former := false
	for a, kind := range want {
		if kind < AddrHost || kind > AddrFormer {
			return fmt.Errorf("sync addresses: %s has %s", a, kind)
		}
		entries[gatewayAddr{W: words(a)}] = uint8(kind)
		if kind == AddrHost {
			hosts = append(hosts, a)
		}
		former = former || kind == AddrFormer
	}
	// The digest says that the table is worth asking: more first, less last.
	err := g.digest.addHosts(hosts, former)
	if err == nil {
		_, err = putEntries(g.objs.HostAddrs, entries)
	}
	if err == nil {
		_, err = pruneEntries(g.objs.HostAddrs, entries)
	}
	if err == nil {
		err = g.digest.setHosts(hosts, former)
	}
	if err != nil {
		return fmt.Errorf("sync addresses: %w", err)
	}
	return nil
}

// restoreAddrs makes the digest of a table that was there before.
func (g *Gateway) restoreAddrs() error {
	var hosts []netip.Addr
	former := false
	err := eachEntry(g.objs.HostAddrs, func(k gatewayAddr, kind uint8) {
		if AddrKind(kind) == AddrHost {
			hosts = append(hosts, addrOf(k.W))
		}
		former = former || AddrKind(kind) == AddrFormer
	})
	return errors.Join(err, g.digest.setHosts(hosts, former))
}
