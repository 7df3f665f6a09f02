package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// SyncAddrs sets the table of addresses to exactly want. It writes new and changed entries before
// it deletes stale ones. It is not atomic; it may be repeated after an error. If the table has no
// room for all, addresses of Services are left out first, see Unwritten. A change of the table ends
// all shortcuts.
func (g *Gateway) SyncAddrs(want map[netip.Addr]verdict.AddrKind) error {
	entries := make(map[gatewayAddr]uint8, len(want))

	// For the digest: the host's addresses, and whether there is a former one.
	var hosts []netip.Addr

	former := false

	for a, kind := range want {
		if kind == verdict.AddrNone || kind > verdict.AddrFormer {
			return fmt.Errorf("sync addresses: %s has %s", a, kind)
		}

		entries[gatewayAddr{W: words(a)}] = uint8(kind)
		if kind == verdict.AddrHost {
			hosts = append(hosts, a)
		}

		former = former || kind == verdict.AddrFormer
	}

	excluded, err := g.fitAddrs(entries)

	// The digest must cover the table: bits are added before entries and removed after them.
	err = errors.Join(err, g.digest.addHosts(hosts, former))

	writes, unwritten := 0, 0
	if err == nil {
		writes, unwritten, err = syncEntries(g.objs.HostAddrs, entries)
	}

	g.unwrittenAddrs = excluded + unwritten

	if writes > 0 { // also after an error
		err = errors.Join(err, g.ForgetShortcuts())
	}

	if err == nil {
		err = g.digest.setHosts(hosts, former)
	}

	if err != nil {
		return fmt.Errorf("sync addresses: %w", err)
	}

	return nil
}

// fitAddrs removes addresses of Services from the entries until the table has room for the rest. It
// returns their number. Addresses that are not in the table yet are removed first.
func (g *Gateway) fitAddrs(entries map[gatewayAddr]uint8) (int, error) {
	excess := len(entries) - int(g.objs.HostAddrs.MaxEntries())
	if excess <= 0 {
		return 0, nil
	}

	have, err := readTable[gatewayAddr, uint8](g.objs.HostAddrs)
	if err != nil {
		return 0, err
	}

	removed := 0

	for _, present := range []bool{false, true} { // first those that are not in the table
		for k, kind := range entries {
			_, exists := have[k]
			if verdict.AddrKind(kind) == verdict.AddrVIP && exists == present && removed < excess {
				delete(entries, k)

				removed++
			}
		}
	}

	return removed, nil
}

// restoreAddrs rebuilds the digest of an existing table.
func (g *Gateway) restoreAddrs() error {
	var hosts []netip.Addr

	former := false
	err := eachEntry(g.objs.HostAddrs, func(k gatewayAddr, kind uint8) {
		if verdict.AddrKind(kind) == verdict.AddrHost {
			hosts = append(hosts, addrOf(k.W))
		}

		former = former || verdict.AddrKind(kind) == verdict.AddrFormer
	})

	return errors.Join(err, g.digest.setHosts(hosts, former))
}
