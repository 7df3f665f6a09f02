package main

import (
	"context"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

const (
	flowCount = 16
	warmUp    = 8 // batches
)

// batchSize is how many operations are timed together. Some work comes in lumps
// (TCP's delayed acknowledgements, and what is freed through RCU: sockets, and the
// tunnel metadata that each packet from OVS's Geneve port has): more, so that each
// batch has its share of them.
func (t test) batchSize() int {
	if t.tcp() || t.overlay() {
		return 256
	}
	return 64
}

// test is one of bench.Tests for one family.
type test struct{ name, family string }

// northSouth tells whether the test's packets are a pod's to the outside.
func (t test) northSouth() bool { return t.name == bench.NSUDPRR || t.name == bench.NSTCPCRR }

func (t test) overlay() bool { return t.name == bench.OverlayUDPRR }

func (t test) tcp() bool {
	return t.name == bench.HostTCPRR || t.name == bench.HostTCPCRR || t.name == bench.NSTCPCRR
}

// connects tells whether each operation is a connection of its own.
func (t test) connects() bool { return t.name == bench.HostTCPCRR || t.name == bench.NSTCPCRR }

// packets returns how many packets of the test the uplink received in so many
// operations: exactly, or at least for TCP, where acknowledgements come on top.
func (t test) packets(ops int) int {
	if t.connects() {
		return 3 * ops // SYN or its answer, data, FIN
	}
	return ops
}

// connections returns how many connections the test made, or none if not counted.
func (t test) connections(ops int, counted bool) int {
	switch {
	case !counted:
		return 0
	case t.connects():
		return ops
	}
	return flowCount
}

// expect returns an error unless got is want, and for TCP between want and twice as
// much and a bit. Of what should be nothing nothing is let through.
func (t test) expect(what string, got, want int) error {
	limit := want
	if t.tcp() && want > 0 {
		limit = 2*want + 2*flowCount
	}
	if got < want || got > limit {
		return fmt.Errorf("check: %d %s, want %d to %d: the variant is not what it claims", got, what, want, limit)
	}
	return nil
}

// one measures one test: instructions per operation, and their spread.
func (m measurement) one(ctx context.Context, t test) (median, spread float64, err error) {
	verify, err := m.variant.watch(ctx, t)
	if err != nil {
		return 0, 0, err
	}
	before, err := received()
	if err != nil {
		return 0, 0, err
	}
	var samples []float64
	if err := inNetns(t.ends().client, func() (err error) {
		samples, err = m.sample(ctx, t)
		return err
	}); err != nil {
		return 0, 0, err
	}
	after, err := received()
	if err != nil {
		return 0, 0, err
	}
	ops := (warmUp + m.batches) * t.batchSize()
	// Neighbour discovery and the like may come on top, but not many.
	if got, want := after-before, t.packets(ops); got < want || (!t.tcp() && got > want+want/20) {
		return 0, 0, fmt.Errorf("check: the uplink received %d packets, want %d: the test does not go over it", got, want)
	}
	if err := verify(ops); err != nil {
		return 0, 0, err
	}
	median, spread = bench.Summarize(samples)
	return median, spread, nil
}

// sample does the test's batches and returns instructions per operation of each,
// without those of the warm-up.
func (m measurement) sample(ctx context.Context, t test) ([]float64, error) {
	op, stop, err := open(t)
	if err != nil {
		return nil, err
	}
	defer stop()
	samples, size := make([]float64, 0, m.batches), t.batchSize()
	for b := range warmUp + m.batches {
		start := tsc()
		for i := range size {
			if err := op(i % flowCount); err != nil {
				return nil, fmt.Errorf("batch %d, operation %d: %w", b, i, err)
			}
		}
		if took := tsc() - start; b >= warmUp {
			samples = append(samples, float64(took)/float64(size))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return samples, nil
}
