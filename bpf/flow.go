package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func flowCell(k verdict.FlowKey) gatewayFlowKey {
	return gatewayFlowKey{
		Remote: gatewayAddr{W: words(k.Remote.Addr())}, RemotePort: bePort(k.Remote.Port()),
		Local: gatewayAddr{W: words(k.Local.Addr())}, LocalPort: bePort(k.Local.Port()),
		Proto: k.Proto,
	}
}

func flowOf(k gatewayFlowKey) verdict.FlowKey {
	return verdict.FlowKey{
		Proto:  k.Proto,
		Remote: addrPort(k.Remote.W, k.RemotePort),
		Local:  addrPort(k.Local.W, k.LocalPort),
	}
}

// SeedFlows adds connections of OVN that their local port does not identify. They count as just
// used; existing entries keep their age. The programs look them up while Config.Takeover is set.
func (g *Gateway) SeedFlows(flows []verdict.FlowKey) error {
	now, err := monotonicNow()
	if err != nil {
		return fmt.Errorf("seed flows: %w", err)
	}

	added := make(map[uint16]int)

	for _, f := range flows {
		err = g.objs.Takeover.Update(flowCell(f), gatewaySeen{Ns: uint64(now)}, ebpf.UpdateNoExist)
		if errors.Is(err, ebpf.ErrKeyExist) {
			err = nil
			continue
		}

		if err != nil {
			break
		}

		added[f.Local.Port()]++
	}

	if err = errors.Join(err, g.digest.countTakeover(added)); err != nil {
		return fmt.Errorf("seed flows: %w", err)
	}

	return nil
}

// Flows calls keep for every seeded flow, with the time since its last packet from the wire. It
// deletes the flows for which keep returns false.
func (g *Gateway) Flows(keep func(f verdict.FlowKey, age time.Duration) bool) error {
	now, err := monotonicNow()
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}

	var stale []gatewayFlowKey

	err = eachEntry(g.objs.Takeover, func(k gatewayFlowKey, s gatewaySeen) {
		if !keep(flowOf(k), max(now-time.Duration(s.Ns), 0)) {
			stale = append(stale, k)
		}
	})

	// by port: the negative number of deleted flows
	deleted := make(map[uint16]int)

	for _, k := range stale {
		if e := g.objs.Takeover.Delete(k); e == nil {
			deleted[bePort(k.LocalPort)]--
		} else if !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
			break
		}
	}

	if err = errors.Join(err, g.digest.countTakeover(deleted)); err != nil {
		return fmt.Errorf("drain flows: %w", err)
	}

	return nil
}

// restoreFlows rebuilds the digest of an existing table.
func (g *Gateway) restoreFlows() error {
	ports := make(map[uint16]int)
	err := eachEntry(g.objs.Takeover, func(k gatewayFlowKey, _ gatewaySeen) { ports[bePort(k.LocalPort)]++ })

	return errors.Join(err, g.digest.countTakeover(ports))
}

// SyncHostProtos sets the protocols without ports that the host itself uses, by peer, to exactly
// the result of scan. A raw socket that is created meanwhile is not lost: either the gate's entry
// for it stays, or a later scan finds it, because a scan follows every change of the table. If scan
// fails nothing changes.
func (g *Gateway) SyncHostProtos(scan func() ([]verdict.NSKey, error)) error {
	const maxScans = 10 // limit while sockets keep changing
	for range maxScans {
		want, err := scan()
		if err != nil {
			return fmt.Errorf("sync host protocols: %w", err)
		}

		changed, err := g.putHostProtos(want)
		if err != nil {
			return fmt.Errorf("sync host protocols: %w", err)
		}

		if !changed {
			break
		}
	}

	return nil
}

// putHostProtos sets the table to exactly want, and reports whether that changed it.
func (g *Gateway) putHostProtos(want []verdict.NSKey) (changed bool, err error) {
	entries := make(map[gatewayNsKey]uint8, len(want))
	for _, k := range want {
		entries[exchangeCell(k)] = 1
	}

	done, err := putEntries(g.objs.HostProtos, entries)
	if err != nil {
		return false, err
	}

	gone, err := pruneEntries(g.objs.HostProtos, entries)

	return done.written > 0 || gone > 0, err
}

// monotonicNow returns the time on the clock of bpf_ktime_get_ns().
func monotonicNow() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}

	return time.Duration(now.Nano()), nil
}
