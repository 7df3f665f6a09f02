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
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const (
	mostUses      = 10              // remotes that Stats names
	fullShare     = 0.9             // of the SNAT range towards one remote: new connections soon fail
	mostTracked   = 200_000         // connections that a dump is made of: it costs vswitchd and us more than it tells
	rareDumps     = 5 * time.Minute // between dumps that only say how full the SNAT range is
	firstDump     = 5 * time.Second // that a starting gateway waits for ovs-vswitchd to tell
	trackedSysctl = "net/netfilter/nf_conntrack_count"
)

// tracker reads conntrack: which connections of before a takeover are OVN's, and how full the
// SNAT range is.
type tracker struct {
	s         Settings
	log       *slog.Logger
	record    *recorder
	wake      loop.Signal // of the gateway's loop
	connected func() bool // to ovs-vswitchd

	none atomic.Bool // no connection of before a takeover is left

	mu   sync.Mutex // guards dump
	dump *dump      // nil: none that the gateway's loop has not seen

	tracking // owned by the gateway's loop
}

// tracking is what the gateway's loop has made of dumps of conntrack.
type tracking struct {
	since  time.Time     // the first look for conntrack
	asked  bool          // the first dump was tried
	known  bool          // there was one
	left   []bpf.FlowKey // connections of OVN's outside the SNAT range that are still there, sorted
	seeded bool          // they are in the programs' table
	warned map[Use]bool  // remotes that were warned of, with Ports 0
}

// run reads conntrack every half minute and wakes the gateway's loop with the result. It is apart
// from that loop: with many connections a dump takes seconds.
func (t *tracker) run(ctx context.Context) error {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !t.connected() || !dumpDue(t.none.Load(), time.Since(last)) {
			continue
		}
		d := t.read(ctx)
		last = time.Now()
		t.mu.Lock()
		t.dump = d
		t.mu.Unlock()
		t.wake.Trigger()
	}
}

// dumpDue reports whether conntrack is to be read again. none: no connection of before a takeover
// is left.
func dumpDue(none bool, since time.Duration) bool { return !none || since >= rareDumps }

// read reads conntrack unless that is too large.
func (t *tracker) read(ctx context.Context) *dump {
	n, err := t.count(ctx)
	if err = errors.Join(err, tooLarge(n)); err != nil {
		return &dump{err: err}
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

// count returns how many connections a dump would have.
func (t *tracker) count(ctx context.Context) (int, error) {
	if t.s.Userspace() {
		return ovs.ConntrackCount(ctx, t.s.OVSRunDir)
	}
	value, err := link.ReadSysctl(trackedSysctl)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing tracks
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

// dump is a reading of conntrack that the loop has not seen yet.
type dump struct {
	list []ovs.Tracked
	err  error
}

// sync notes what conntrack has. The first reading comes before anything is attached, written or
// moved. From then on the connections that an earlier gateway let through must be known: the
// host's stack would reset them. sync returns an error while that has to wait for ovs-vswitchd,
// for at most firstDump: in layout bridged the host needs the programs when there is none.
func (t *tracker) sync(ctx context.Context, n Node) error {
	t.mu.Lock()
	d := t.dump
	t.dump = nil
	t.mu.Unlock()
	if d == nil && !t.asked {
		if t.since.IsZero() {
			t.since = time.Now()
		}
		d = t.read(ctx)
		if d.err != nil && !t.connected() && time.Since(t.since) < firstDump {
			return fmt.Errorf("connections of before are not known: %w", d.err)
		}
		t.asked = true
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
	if t.known { // later ones are not of before
		now = slices.DeleteFunc(now, func(k bpf.FlowKey) bool { return !isIn(t.left, k) })
	} else if len(now) > 0 {
		t.log.Info("connections of before are OVN's although their ports are not", "count", len(now))
	}
	if len(now) == 0 && len(t.left) > 0 {
		t.log.Info("no connection of before is left")
	}
	t.known, t.left = true, now
	t.none.Store(len(now) == 0)
	t.noteUse(portUse(d.list, addrs, t.s.SNATPorts))
}

// takenOver returns the connections of before that are OVN's. As far as the host's sockets can be
// listed, it leaves out those of the host.
func (t *tracker) takenOver(tracked []ovs.Tracked, node []netip.Addr) []bpf.FlowKey {
	flows := takenOver(tracked, node, t.s.SNATPorts)
	if len(flows) == 0 {
		return nil
	}
	sockets, err := link.Sockets(1, math.MaxUint16)
	t.record.degraded(partScan, err)
	return notHosts(flows, sockets)
}

// seed brings the programs' table of connections in line with what is left of those of before.
// The first time it reads conntrack once more: pods went on connecting while the programs loaded.
func (t *tracker) seed(ctx context.Context, programs *bpf.Gateway, n Node) error {
	if !t.known {
		return nil
	}
	if !t.seeded {
		if d := t.read(ctx); d.err == nil {
			t.left = t.takenOver(d.list, nodeAddrs(n))
			t.none.Store(len(t.left) == 0)
		}
		if err := programs.SeedFlows(t.left); err != nil {
			return err
		}
		t.seeded = true
	}
	return programs.Flows(func(k bpf.FlowKey, _ time.Duration) bool { return isIn(t.left, k) })
}

// noteUse publishes how full the SNAT range is. It warns once of each remote towards which the
// range is nearly full: the pods whose connections fail learn no reason.
func (t *tracker) noteUse(uses []Use) {
	size := int(t.s.SNATPorts.Last) - int(t.s.SNATPorts.First) + 1
	warned := map[Use]bool{}
	for _, u := range uses {
		if float64(u.Ports) < fullShare*float64(size) {
			continue
		}
		key := Use{Proto: u.Proto, Remote: u.Remote}
		if warned[key] = true; !t.warned[key] {
			t.log.Warn("the SNAT port range is nearly used up towards a remote: connections of pods to it will fail",
				"remote", u.Remote, "protocol", u.Proto, "used", u.Ports, "of", size)
		}
	}
	t.warned = warned
	t.record.setPortUse(uses[:min(len(uses), mostUses)], size)
}
