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
	mostUses      = 10              // limit of remotes in Stats
	fullShare     = 0.9             // used share of the SNAT range, towards one remote, from which to warn
	mostTracked   = 200_000         // limit of connections; a larger dump costs more than it is worth
	rareDumps     = 5 * time.Minute // between dumps that only measure the use of the SNAT range
	firstDumpWait = 5 * time.Second // limit of a starting gateway's wait for ovs-vswitchd
	trackedSysctl = "net/netfilter/nf_conntrack_count"
)

// tracker reads conntrack. It determines which connections from before a takeover belong to OVN,
// and how full the SNAT range is. run reads a dump and leaves it in the field dump. In the next
// round, the gateway's loop processes it (sync), and writes the result to the programs (seed).
// conntrack.go interprets dumps.
type tracker struct {
	s         Settings
	log       *slog.Logger
	record    *recorder
	wake      loop.Signal // triggers the gateway's loop
	connected func() bool // reports whether ovs-vswitchd is connected

	noneLeft atomic.Bool // no connection from before a takeover is left

	mu   sync.Mutex // guards dump
	dump *dump      // the last of run; nil: the gateway's loop has processed it

	tracking // owned by the gateway's loop
}

// tracking is the state that the gateway's loop derives from conntrack dumps.
type tracking struct {
	startedAt     time.Time         // of the first sync
	dumpAttempted bool              // a first dump was attempted
	dumpSucceeded bool              // a dump has succeeded
	outsideRange  []verdict.FlowKey // OVN's connections from before a takeover that still exist, sorted
	seeded        bool              // they are in the programs' table
	warned        map[PortUse]bool  // remotes already warned about; as a key, Ports is 0
}

// dump is the result of one read of conntrack.
type dump struct {
	list []ovs.TrackedConnection
	err  error
}

// run reads conntrack and triggers the gateway's loop with the result: at each resync while
// connections from before a takeover may be left, then after rareDumps. It runs apart from that
// loop, because a dump of many connections takes seconds.
func (t *tracker) run(ctx context.Context) error {
	last := time.Now()

	return loop.Every(ctx, resync, func() {
		if !t.connected() || !isDumpDue(t.noneLeft.Load(), time.Since(last)) {
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

// isDumpDue reports whether to read conntrack again. noneLeft means that no connection from before
// a takeover is left.
func isDumpDue(noneLeft bool, sinceLast time.Duration) bool {
	return !noneLeft || sinceLast >= rareDumps
}

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

// tooLarge returns an error if conntrack has more connections than mostTracked.
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

// sync processes the last dump of run. The first call reads conntrack itself. It must come before
// anything is attached, written or moved: the connections of an earlier gateway must be known, or
// the host's stack would reset them. While ovs-vswitchd does not answer, sync returns an error, for
// at most firstDumpWait. After that the gateway starts without a dump, because in layout bridged
// the host needs the programs.
func (t *tracker) sync(ctx context.Context, n Node) error {
	t.mu.Lock()
	d := t.dump
	t.dump = nil
	t.mu.Unlock()

	if d == nil && !t.dumpAttempted {
		if t.startedAt.IsZero() {
			t.startedAt = time.Now()
		}

		d = t.read(ctx)
		if d.err != nil && !t.connected() && time.Since(t.startedAt) < firstDumpWait {
			return fmt.Errorf("earlier connections unknown: %w", d.err)
		}

		t.dumpAttempted = true
	}

	if d != nil {
		t.process(*d, n)
	}

	return nil
}

// process derives the tracking state from a dump. An error is recorded, and the state stays.
func (t *tracker) process(d dump, n Node) {
	t.record.setFault(partTracking, d.err)

	if d.err != nil {
		return
	}

	addrs := nodeAddrs(n)

	now := t.ovnConnections(d.list, addrs)
	if t.dumpSucceeded { // connections that are new since then did not begin before the takeover
		now = slices.DeleteFunc(now, func(k verdict.FlowKey) bool { return !containsFlow(t.outsideRange, k) })
	} else if len(now) > 0 {
		t.log.Info("connections from before the takeover belong to OVN", "count", len(now))
	}

	if len(now) == 0 && len(t.outsideRange) > 0 {
		t.log.Info("no connection from before the takeover is left")
	}

	t.dumpSucceeded, t.outsideRange = true, now
	t.noneLeft.Store(len(now) == 0)
	t.recordPortUse(countPortUse(d.list, addrs, t.s.SNATPorts))
}

// ovnConnections returns OVN's connections outside the SNAT range. It leaves out those of host
// sockets, if the kernel can list them.
func (t *tracker) ovnConnections(tracked []ovs.TrackedConnection, node []netip.Addr) []verdict.FlowKey {
	flows := connectionsOutside(t.s.SNATPorts, tracked, node)
	if len(flows) == 0 {
		return nil
	}

	sockets, err := link.Sockets(1, math.MaxUint16) // every port
	t.record.setFault(partScan, err)

	return withoutHostFlows(flows, sockets)
}

// seed writes the connections from before a takeover to the programs' table, and deletes those that
// have ended. The first time it reads conntrack again, because pods opened connections while the
// programs loaded. If that fails, it continues with those of the last dump.
func (t *tracker) seed(ctx context.Context, programs *bpf.Gateway, n Node) error {
	if !t.dumpSucceeded {
		return nil
	}

	if !t.seeded {
		if d := t.read(ctx); d.err == nil {
			t.outsideRange = t.ovnConnections(d.list, nodeAddrs(n))
			t.noneLeft.Store(len(t.outsideRange) == 0)
		}

		if err := programs.SeedFlows(t.outsideRange); err != nil {
			return err
		}

		t.seeded = true
	}

	stillExists := func(k verdict.FlowKey, _ time.Duration) bool { return containsFlow(t.outsideRange, k) }

	return programs.Flows(stillExists)
}

// recordPortUse publishes how full the SNAT range is. It warns once for each remote towards which
// the range is nearly full, because the affected pods get no reason for failed connections.
func (t *tracker) recordPortUse(uses []PortUse) {
	size := t.s.SNATPorts.Len()
	warned := map[PortUse]bool{}

	for _, u := range uses {
		if float64(u.Ports) < fullShare*float64(size) {
			continue
		}

		key := PortUse{Proto: u.Proto, Remote: u.Remote}
		warned[key] = true

		if !t.warned[key] {
			t.log.Warn("the SNAT port range is nearly exhausted towards a remote: pod connections to it will fail",
				"remote", u.Remote, "protocol", model.ProtocolName(u.Proto), "used", u.Ports, "of", size)
		}
	}

	t.warned = warned
	t.record.change(func(s *Stats) { s.PortUse, s.SNATPorts = uses[:min(len(uses), mostUses)], size })
}
