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
	flowCount     = 16 // default number of flows
	warmUpBatches = 8  // minimum number of batches before the counted ones
)

// batchSize returns the number of operations that are counted together. Some work occurs in bursts:
// TCP's delayed acknowledgements, and memory that is freed through RCU (sockets, and the tunnel
// metadata of each packet from OVS's Geneve port). Large batches have a fair share of it. New
// connections have smaller batches, because each leaves a port in TIME_WAIT: connect(2) first
// searches one half of the 16,384 free ports, and with too many connections the test would measure
// a full search.
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
	flows        int // number of connections, or of echo identifiers; 0: flowCount
	used         int // client ports that earlier tests used, whose connections are still in conntrack
	seed         int // selects the clients' ports
}

// firstPort returns the source port of the first flow. With another seed, the flows have other
// places in the kernel's hash tables.
func (t test) firstPort() int { return clientPort + t.seed%400*flowCount + t.used }

// flowNumber returns the number of flows over which operations rotate.
func (t test) flowNumber() int { return cmp.Or(t.flows, flowCount) }

// warmUp returns the number of batches that do not count. It is enough to use each flow about
// twice.
func (t test) warmUp() int { return max(warmUpBatches, 2*t.flowNumber()/t.batchSize()) }

// northSouth reports whether the test sends packets from a pod to the outside.
func (t test) northSouth() bool { return strings.HasPrefix(t.name, "ns_") }

func (t test) overlay() bool { return strings.HasPrefix(t.name, "overlay_") }

func (t test) nodePort() bool { return strings.HasPrefix(t.name, "nodeport_") }

// hostSends reports whether the host itself sends packets, including those of its tunnels.
func (t test) hostSends() bool { return !t.northSouth() && t.name != bench.NodePortLocal }

// stream reports whether an operation is a write of streamSize.
func (t test) stream() bool { return strings.Contains(t.name, "_stream_") }

// out reports whether the node's host is the client.
func (t test) fromHost() bool { return t.name == bench.EndpointTCPCRR || t.name == bench.ServiceTCPCRR }

func (t test) tcp() bool { return strings.Contains(t.name, "_tcp_") || t.stream() }

// connects reports whether each operation uses a new connection.
func (t test) connects() bool { return strings.HasSuffix(t.name, "_crr") }

// packets returns the number of packets that the uplink receives in a test. For TCP, which adds
// acknowledgements, it is the minimum.
func (t test) packets(ops int) int {
	if t.connects() {
		return 3 * ops // SYN or SYN+ACK, data, FIN
	}

	return ops
}

// connections returns the number of connections of a test, or 0 if the variant does not count them.
func (t test) connections(ops int, counted bool) int {
	switch {
	case !counted:
		return 0
	case t.connects():
		return ops
	}

	return t.flowNumber()
}

// expect returns an error unless got is want. TCP has further packets: acknowledgements, at most
// about one for each packet, and in streams as many segments as a write may take. So for TCP, got
// may be more, up to a limit. If want is zero, got must be zero.
func (t test) expect(what string, got, want int) error {
	limit := want
	switch {
	case want == 0:
	case t.stream(): // segments of at least 1000 bytes
		limit = streamSize/1000*want + 2*t.flowNumber()
	case t.tcp():
		limit = 2*want + 2*t.flowNumber()
	}

	if got < want || got > limit {
		return fmt.Errorf("check: %d %s, want %d to %d: the variant is not what it claims", got, what, want, limit)
	}

	return nil
}

// batchesOf returns the number of counted batches of a test. Tests with a connection per operation
// have fewer, because they take a third of the total time.
func (m measurement) batchesOf(t test) int {
	if t.connects() {
		return max(1, m.batches*4/5)
	}

	return m.batches
}

// measureTest returns the instructions per operation of a test, and their spread. It returns an
// error if the packets did not pass the uplink, or took another path than the variant's.
func (m measurement) measureTest(ctx context.Context, t test) (median, spread float64, err error) {
	if err := awaitTimeWait(ctx, t); err != nil {
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
	// A few packets of neighbour discovery and the like are permitted.
	if got, want := after-before, t.packets(ops); got < want || (!t.tcp() && got > want+want/20) {
		return 0, 0, fmt.Errorf("check: the uplink received %d packets, want %d: the test does not go over it", got, want)
	}

	if err := verify(ops); err != nil {
		return 0, 0, err
	}

	median, spread = bench.Summarize(samples)

	return median, spread, nil
}

// awaitTimeWait waits, before a test of TCP, until the sockets of earlier connections have left
// TIME_WAIT. Their ports cannot be bound, and slow down the search for free ones. A minute of an
// idle guest takes no real time.
func awaitTimeWait(ctx context.Context, t test) error {
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

// lingering returns the number of sockets in TIME_WAIT in a namespace.
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

// sample runs the test's batches and returns the instructions per operation of each, without the
// warm-up.
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
