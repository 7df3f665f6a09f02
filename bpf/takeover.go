package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// This file has the table takeover: connections of OVN whose local port does not identify OVN as
// their owner. The agent seeds it. The programs only renew the time of an entry, by which the agent
// finds out that a connection has ended.

// flowCell returns k in the format of the programs.
func flowCell(k verdict.FlowKey) gatewayFlowKey {
	return gatewayFlowKey{
		Remote: gatewayAddr{W: words(k.Remote.Addr())}, RemotePort: bePort(k.Remote.Port()),
		Local: gatewayAddr{W: words(k.Local.Addr())}, LocalPort: bePort(k.Local.Port()),
		Proto: k.Proto,
	}
}

// flowOf is the inverse of flowCell.
func flowOf(k gatewayFlowKey) verdict.FlowKey {
	return verdict.FlowKey{
		Proto:  k.Proto,
		Remote: addrPort(k.Remote.W, k.RemotePort),
		Local:  addrPort(k.Local.W, k.LocalPort),
	}
}

// SeedFlows adds connections of OVN. They count as just used; existing entries keep their age. The
// programs look them up while Config.Takeover is set. After an error, some may have been added.
func (g *Gateway) SeedFlows(flows []verdict.FlowKey) error {
	now, err := monotonicNow()
	if err != nil {
		return fmt.Errorf("seed flows: %w", err)
	}

	added := make(map[uint16]int) // number of new entries, by local port

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
