package bpf

import (
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// This file has the table of Services' frontends. Each change of the table has a change of the
// digest of ports (digest.go) around it, which must cover all entries. If the table is full, the
// rest waits in Gateway.unwritten.

// serviceCell returns k in the format of the programs.
func serviceCell(k verdict.ServiceKey) gatewayServiceKey {
	return gatewayServiceKey{Addr: gatewayAddr{W: words(k.Addr)}, Port: bePort(k.Port), Proto: k.Proto}
}

// SyncServices sets the service table to exactly want, as SyncAddrs does. Entries without room are
// left out, see Unwritten.
func (g *Gateway) SyncServices(want map[verdict.ServiceKey]verdict.ServiceOwner) error {
	entries, err := serviceEntries(want)
	if err != nil {
		return fmt.Errorf("sync services: %w", err)
	}

	stale, err := findKeys(g.objs.Services, func(k gatewayServiceKey, _ uint8) bool {
		_, ok := entries[k]
		return !ok
	})
	if err == nil {
		clear(g.unwritten)
		_, err = g.changeServices(entries, stale)
	}

	if err != nil {
		return fmt.Errorf("sync services: %w", err)
	}

	return nil
}

// UpdateServices adds add, then deletes remove. Other entries stay. writes is the number of written
// and deleted entries; unchanged entries are not written. After an error it may be repeated, or
// SyncServices called. Entries without room are left out until other entries are removed.
func (g *Gateway) UpdateServices(
	add map[verdict.ServiceKey]verdict.ServiceOwner,
	remove []verdict.ServiceKey,
) (writes int, err error) {
	entries, err := serviceEntries(add)
	if err != nil {
		return 0, fmt.Errorf("update services: %w", err)
	}

	var stale []gatewayServiceKey

	for _, k := range remove {
		if _, ok := add[k]; !ok {
			stale = append(stale, serviceCell(k))
		}
	}

	if writes, err = g.changeServices(entries, stale); err != nil {
		return writes, fmt.Errorf("update services: %w", err)
	}

	return writes, nil
}

// serviceEntries returns the frontends and owners in the format of the programs.
func serviceEntries(owners map[verdict.ServiceKey]verdict.ServiceOwner) (map[gatewayServiceKey]uint8, error) {
	entries := make(map[gatewayServiceKey]uint8, len(owners))
	for k, owner := range owners {
		if owner != verdict.ServiceOVN && owner != verdict.ServiceHost {
			return nil, fmt.Errorf("frontend %s port %d has unknown owner %d", k.Addr, k.Port, owner)
		}

		entries[serviceCell(k)] = uint8(owner)
	}

	return entries, nil
}

// changeServices writes the entries, then deletes stale. Then it writes entries for which the table
// had no room before. writes is the number of written and deleted entries.
func (g *Gateway) changeServices(
	entries map[gatewayServiceKey]uint8,
	stale []gatewayServiceKey,
) (writes int, err error) {
	put, err := g.writeCounted(maps.Keys(entries), func() (tableWrites[gatewayServiceKey], error) {
		return putEntries(g.objs.Services, entries)
	})
	for k := range entries {
		g.unwritten.forget(k)
	}

	g.unwritten.add(put.full, entries)

	if err != nil {
		return put.written, err
	}

	deleted, err := g.deleteServices(stale)
	if err != nil || len(g.unwritten) == 0 {
		return put.written + deleted, err
	}

	late, err := g.writeCounted(maps.Keys(g.unwritten), func() (tableWrites[gatewayServiceKey], error) {
		return writeOverflow(g.unwritten, g.objs.Services)
	})

	return put.written + deleted + late.written, err
}

// writeCounted adds the ports of keys to the digest before write puts keys into the table, and
// takes back those that write does not add. A port in the digest without an entry does no harm. But
// the programs do not find an entry whose port is not in the digest.
func (g *Gateway) writeCounted(
	keys iter.Seq[gatewayServiceKey],
	write func() (tableWrites[gatewayServiceKey], error),
) (tableWrites[gatewayServiceKey], error) {
	planned, extra := map[uint16]int{}, map[uint16]int{}
	for k := range keys {
		planned[bePort(k.Port)]++
		extra[bePort(k.Port)]--
	}

	if err := g.digest.countServices(planned); err != nil {
		return tableWrites[gatewayServiceKey]{}, err
	}

	put, err := write()
	for _, k := range put.added {
		extra[bePort(k.Port)]++
	}

	return put, errors.Join(err, g.digest.countServices(extra))
}

// deleteServices deletes the entries, and then the ports of which no entry is left from the digest.
// writes is the number of deleted entries.
func (g *Gateway) deleteServices(stale []gatewayServiceKey) (writes int, err error) {
	g.unwritten.forget(stale...)

	gone := make(map[uint16]int) // by port: the negative number of deleted entries

	for _, k := range stale {
		switch err = g.objs.Services.Delete(k); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			err = nil
		case err == nil:
			writes++
			gone[bePort(k.Port)]--
		}

		if err != nil {
			break
		}
	}

	return writes, errors.Join(err, g.digest.countServices(gone))
}

// restoreServices rebuilds the digest of an existing table.
func (g *Gateway) restoreServices() error {
	ports := make(map[uint16]int)
	err := eachEntry(g.objs.Services, func(k gatewayServiceKey, _ uint8) { ports[bePort(k.Port)]++ })

	return errors.Join(err, g.digest.countServices(ports))
}
