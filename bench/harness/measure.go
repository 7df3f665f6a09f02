package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

const (
	flowCount = 16 // unless asked for others
	warmUp    = 8  // batches, or more, that each flow has been used
)

// batchSize is how many operations are timed together. Some work comes in lumps
// (TCP's delayed acknowledgements, and what is freed through RCU: sockets, and the
// tunnel metadata that each packet from OVS's Geneve port has): more, so that each
// batch has its share of them. Connections are fewer: each leaves a port in
// TIME_WAIT, and of the 16,384 that the range leaves connect() looks at one half
// first; past that a search of all of them would be what is measured.
func (t test) batchSize() int {
	if t.connects() {
		return 128
	}
	if t.stream() {
		return 64
	}
	if t.tcp() || t.overlay() {
		return 256
	}
	return 64
}

// test is one of bench.Tests for one family.
type test struct {
	name, family string
	flows        int // 0: flowCount
	used         int // ports of the clients' that fewer flows had before; their connections are still tracked
	seed         int // of the clients' ports
}

// firstPort is the first flow's source port: another seed, other places in the
// kernel's tables.
func (t test) firstPort() int { return clientPort + t.seed%400*flowCount + t.used }

// flowNumber returns how many flows the operations take turns on.
func (t test) flowNumber() int { return cmp.Or(t.flows, flowCount) }

// warmUp returns how many batches come before those that count.
func (t test) warmUp() int { return max(warmUp, 2*t.flowNumber()/t.batchSize()) }

// northSouth tells whether the test's packets are a pod's to the outside.
func (t test) northSouth() bool { return strings.HasPrefix(t.name, "ns_") }

func (t test) overlay() bool { return strings.HasPrefix(t.name, "overlay_") }

func (t test) nodePort() bool { return strings.HasPrefix(t.name, "nodeport_") }

// hostSends tells whether packets leave the node that are the host's own, those of
// its tunnels among them.
func (t test) hostSends() bool { return !t.northSouth() && t.name != bench.NodePortLocal }

// stream tells whether an operation is a write of streamSize.
func (t test) stream() bool { return strings.Contains(t.name, "_stream_") }

// out tells whether the node's host is the client.
func (t test) out() bool { return t.name == bench.EndpointTCPCRR || t.name == bench.ServiceTCPCRR }

func (t test) tcp() bool { return strings.Contains(t.name, "_tcp_") || t.stream() }

// connects tells whether each operation is a connection of its own.
func (t test) connects() bool { return strings.HasSuffix(t.name, "_crr") }

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
	return t.flowNumber()
}

// expect returns an error unless got is want, and for TCP between want and twice as
// much and a bit. Of what should be nothing nothing is let through.
func (t test) expect(what string, got, want int) error {
	limit := want
	switch {
	case want == 0:
	case t.stream(): // in as many packets as it may take
		limit = streamSize/1000*want + 2*t.flowNumber()
	case t.tcp():
		limit = 2*want + 2*t.flowNumber()
	}
	if got < want || got > limit {
		return fmt.Errorf("check: %d %s, want %d to %d: the variant is not what it claims", got, what, want, limit)
	}
	return nil
}

// batchesOf returns how many batches of a test count. Connections take a third of the
// time of all tests, and their batches are twice as large as others.
func (m measurement) batchesOf(t test) int {
	if t.connects() {
		return max(1, m.batches*4/5)
	}
	return m.batches
}

// one measures one test: instructions per operation, and their spread.
func (m measurement) one(ctx context.Context, t test) (median, spread float64, err error) {
	if err := forget(ctx, t); err != nil {
		return 0, 0, err
	}
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
	ops := (t.warmUp() + m.batchesOf(t)) * t.batchSize()
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

// forget waits until the connections of the tests before are over for TCP too: the
// ports that they keep could not be bound, and would have to be searched past. An idle
// guest's minute takes no time.
func forget(ctx context.Context, t test) error {
	const timeWait = 60 * time.Second
	for start := time.Now(); t.tcp(); {
		n, err := lingering(t.ends().client)
		if err != nil || n == 0 {
			return err
		}
		if time.Since(start) > 2*timeWait {
			return fmt.Errorf("wait for the end of earlier connections: %d are left", n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return nil
}

// lingering returns how many sockets of a namespace are in TIME_WAIT.
func lingering(netns string) (n int, err error) {
	err = inNetns(netns, func() error {
		data, err := os.ReadFile("/proc/thread-self/net/sockstat")
		if err != nil {
			return fmt.Errorf("count sockets: %w", err)
		}
		_, rest, ok := strings.Cut(string(data), " tw ")
		if !ok {
			return fmt.Errorf("count sockets: no tw in %q", data)
		}
		_, err = fmt.Sscan(rest, &n)
		return err
	})
	return n, err
}

// sample does the test's batches and returns instructions per operation of each,
// without those of the warm-up.
func (m measurement) sample(ctx context.Context, t test) ([]float64, error) {
	op, stop, err := open(t)
	if err != nil {
		return nil, err
	}
	defer stop()
	batches, size, flows, warm := m.batchesOf(t), t.batchSize(), t.flowNumber(), t.warmUp()
	samples := make([]float64, 0, batches)
	flow := 0
	for b := range warm + batches {
		marked := m.profiling && b >= warm
		if marked {
			markBegin()
		}
		start := tsc()
		for i := range size {
			if err := op(flow); err != nil {
				return nil, fmt.Errorf("batch %d, operation %d: %w", b, i, err)
			}
			if flow++; flow == flows {
				flow = 0
			}
		}
		took := tsc() - start
		if marked {
			markEnd()
		}
		if b >= warm {
			samples = append(samples, float64(took)/float64(size))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return samples, nil
}
