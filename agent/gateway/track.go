package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	mostUses      = 10              // remotes in Stats
	fullShare     = 0.9             // share of the SNAT range in use towards one remote: new connections soon fail
	mostTracked   = 200_000         // larger tables are not dumped: the cost outweighs the benefit
	rareDumps     = 5 * time.Minute // between dumps that only measure the use of the SNAT range
	firstDump     = 5 * time.Second // time that a starting gateway waits for ovs-vswitchd
	trackedSysctl = "net/netfilter/nf_conntrack_count"
)

// tracker reads conntrack. It determines which connections from before a takeover belong to OVN,
// and how full the SNAT range is.
type tracker struct {
	s         Settings
	log       *slog.Logger
	record    *recorder
	wake      loop.Signal // triggers the gateway's loop
	connected func() bool // whether ovs-vswitchd is connected

	noneLeft atomic.Bool // no connection from before a takeover is left

	mu   sync.Mutex // guards dump
	dump *dump      // nil: the gateway's loop has processed it

	tracking // owned by the gateway's loop
}

// tracking is the state that the gateway's loop derives from conntrack dumps.
type tracking struct {
	since         time.Time         // time of the first sync
	dumpAttempted bool              // a first dump was attempted
	dumpSucceeded bool              // a dump has succeeded
	outsideRange  []verdict.FlowKey // OVN's connections outside the SNAT range that still exist, sorted
	seeded        bool              // they are in the programs' table
	warned        map[PortUse]bool  // remotes already warned about, with Ports 0
}

// run reads conntrack every half minute and triggers the gateway's loop with the result. It runs
// apart from that loop, because a dump of many connections takes seconds.
func (t *tracker) run(ctx context.Context) error {
	last := time.Now()

	return loop.Every(ctx, resync, func() {
		if !t.connected() || !shouldDump(t.noneLeft.Load(), time.Since(last)) {
			return
		}

		d := t.read(ctx)
		last = time.Now()

		t.mu.Lock()
		t.dump = d
		t.mu.Unlock()
		t.wake.Trigger()
	})
}

// shouldDump reports whether to read conntrack again. none means that no connection from before a
// takeover is left.
func shouldDump(none bool, since time.Duration) bool { return !none || since >= rareDumps }

// read reads conntrack, unless it is empty or too large.
func (t *tracker) read(ctx context.Context) *dump {
	n, err := t.count(ctx)
	if err = errors.Join(err, tooLarge(n)); err != nil {
		return &dump{err: err}
	}

	if n == 0 && t.s.Userspace() { // there may be no datapath to dump
		return &dump{}
	}

	list, err := ovs.Conntrack(ctx, t.s.OVSRunDir)

	return &dump{list: list, err: err}
}

func tooLarge(connections int) error {
	if connections <= mostTracked {
		return nil
	}

	return fmt.Errorf("conntrack too large: %d", connections)
}

// count returns the number of connections in a dump.
func (t *tracker) count(ctx context.Context) (int, error) {
	if t.s.Userspace() {
		return ovs.ConntrackCount(ctx, t.s.OVSRunDir)
	}

	value, err := link.ReadSysctl(trackedSysctl)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // no connection tracking
	}

	if err != nil {
		return 0, err
	}

	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil {
		return 0, fmt.Errorf("sysctl %s: %w", trackedSysctl, err)
	}

	return n, nil
}

// dump is a conntrack reading that the loop has not processed yet.
type dump struct {
	list []ovs.TrackedConnection
	err  error
}

// sync processes the last dump. The first one must come before anything is attached, written or
// moved: the connections of an earlier gateway must be known, or the host's stack would reset them.
// Until then sync returns an error while ovs-vswitchd does not answer, for at most firstDump. After
// that it continues without, because in layout bridged the host needs the programs.
func (t *tracker) sync(ctx context.Context, n Node) error {
	t.mu.Lock()
	d := t.dump
	t.dump = nil
	t.mu.Unlock()

	if d == nil && !t.dumpAttempted {
		if t.since.IsZero() {
			t.since = time.Now()
		}

		d = t.read(ctx)
		if d.err != nil && !t.connected() && time.Since(t.since) < firstDump {
			return fmt.Errorf("earlier connections unknown: %w", d.err)
		}

		t.dumpAttempted = true
	}

	if d != nil {
		t.note(*d, n)
	}

	return nil
}

func (t *tracker) note(d dump, n Node) {
	t.record.degraded(partTracking, d.err)

	if d.err != nil {
		return
	}

	addrs := nodeAddrs(n)

	now := t.takenOver(d.list, addrs)
	if t.dumpSucceeded { // later connections are not from before
		now = slices.DeleteFunc(now, func(k verdict.FlowKey) bool { return !containsFlow(t.outsideRange, k) })
	} else if len(now) > 0 {
		t.log.Info("connections from before the takeover belong to OVN", "count", len(now))
	}

	if len(now) == 0 && len(t.outsideRange) > 0 {
		t.log.Info("no connection from before the takeover is left")
	}

	t.dumpSucceeded, t.outsideRange = true, now
	t.noneLeft.Store(len(now) == 0)
	t.noteUse(portUse(d.list, addrs, t.s.SNATPorts))
}

// takenOver returns OVN's connections from before. It leaves out those of host sockets, if the
// kernel can list them.
func (t *tracker) takenOver(tracked []ovs.TrackedConnection, node []netip.Addr) []verdict.FlowKey {
	flows := takenOver(tracked, node, t.s.SNATPorts)
	if len(flows) == 0 {
		return nil
	}

	sockets, err := link.Sockets(1, math.MaxUint16)
	t.record.degraded(partScan, err)

	return withoutHostFlows(flows, sockets)
}

// seed writes the remaining connections from before to the programs' table. The first time it reads
// conntrack again, because pods opened connections while the programs loaded.
func (t *tracker) seed(ctx context.Context, programs *bpf.Gateway, n Node) error {
	if !t.dumpSucceeded {
		return nil
	}

	if !t.seeded {
		if d := t.read(ctx); d.err == nil {
			t.outsideRange = t.takenOver(d.list, nodeAddrs(n))
			t.noneLeft.Store(len(t.outsideRange) == 0)
		}

		if err := programs.SeedFlows(t.outsideRange); err != nil {
			return err
		}

		t.seeded = true
	}

	return programs.Flows(func(k verdict.FlowKey, _ time.Duration) bool { return containsFlow(t.outsideRange, k) })
}

// noteUse publishes how full the SNAT range is. It warns once for each remote towards which the
// range is nearly full, because the affected pods get no reason for failed connections.
func (t *tracker) noteUse(uses []PortUse) {
	size := t.s.SNATPorts.Len()
	warned := map[PortUse]bool{}

	for _, u := range uses {
		if float64(u.Ports) < fullShare*float64(size) {
			continue
		}

		key := PortUse{Proto: u.Proto, Remote: u.Remote}
		if warned[key] = true; !t.warned[key] {
			t.log.Warn("the SNAT port range is nearly exhausted towards a remote: pod connections to it will fail",
				"remote", u.Remote, "protocol", model.ProtocolName(u.Proto), "used", u.Ports, "of", size)
		}
	}

	t.warned = warned
	t.record.set(func(s *Stats) { s.PortUse, s.SNATPorts = uses[:min(len(uses), mostUses)], size })
}
