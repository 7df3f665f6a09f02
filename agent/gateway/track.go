package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const (
	extraTracking = "connection_tracking" // connections of before a takeover, use of the SNAT range
	mostUses      = 10                    // remotes that Stats names
	fullShare     = 0.9                   // of the SNAT range towards one remote: new connections soon fail
	mostTracked   = 200_000               // connections that a dump is made of: it costs vswitchd and us more than it tells
	calmDumps     = 5 * time.Minute       // between dumps that only say how full the SNAT range is
	firstDump     = 5 * time.Second       // that a starting gateway waits for ovs-vswitchd to tell
	trackedSysctl = "net/netfilter/nf_conntrack_count"
)

// tracking is what the gateway makes of dumps of conntrack.
type tracking struct {
	since  time.Time     // the first look for conntrack
	asked  bool          // the first dump was tried
	known  bool          // there was one
	left   []bpf.FlowKey // connections of OVN's outside the SNAT range that are still there, sorted
	seeded bool          // they are in the programs' table
	said   map[Use]bool  // remotes that were warned of, with Ports 0
}

// track reads conntrack now and then and wakes the loop with what it found. It
// is apart from the loop: with many connections a dump takes seconds.
func (g *Gateway) track(ctx context.Context) error {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if !g.vswitchd.Load() || !dumpDue(g.calm.Load(), time.Since(last)) {
			continue
		}
		d := g.readTracked(ctx)
		last = time.Now()
		g.mu.Lock()
		g.dump = d
		g.mu.Unlock()
		g.wake.Kick()
	}
}

// dumpDue reports whether conntrack is to be read again; calm is that no connection
// of before is waited for.
func dumpDue(calm bool, since time.Duration) bool { return !calm || since >= calmDumps }

// readTracked reads conntrack unless that is too large.
func (g *Gateway) readTracked(ctx context.Context) *dump {
	n, err := g.countTracked(ctx)
	if err = errors.Join(err, tooLarge(n)); err != nil {
		return &dump{err: err}
	}
	list, err := ovs.Conntrack(ctx, g.s.OVSRunDir)
	return &dump{list: list, err: err}
}

func tooLarge(connections int) error {
	if connections <= mostTracked {
		return nil
	}
	return fmt.Errorf("conntrack too large: %d", connections)
}

// countTracked returns how many connections a dump would have.
func (g *Gateway) countTracked(ctx context.Context) (int, error) {
	if g.s.Userspace() {
		return ovs.ConntrackCount(ctx, g.s.OVSRunDir)
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

// syncTracking notes what conntrack says. The first reading comes before anything is
// attached, written or moved: from then on it must be known whose the connections are
// that an earlier gateway let through, for the host's stack would reset them. It
// returns an error while that has to wait for ovs-vswitchd, which is not for long: in
// layout bridged the host needs the programs when there is none.
func (g *Gateway) syncTracking(ctx context.Context, n Node) error {
	g.mu.Lock()
	d := g.dump
	g.dump = nil
	g.mu.Unlock()
	if t := &g.tracking; d == nil && !t.asked {
		if t.since.IsZero() {
			t.since = time.Now()
		}
		d = g.readTracked(ctx)
		if d.err != nil && !g.vswitchd.Load() && time.Since(t.since) < firstDump {
			return fmt.Errorf("connections of before are not known: %w", d.err)
		}
		t.asked = true
	}
	if d != nil {
		g.noteTracked(*d, n)
	}
	return nil
}

func (g *Gateway) noteTracked(d dump, n Node) {
	g.degraded(extraTracking, d.err)
	if d.err != nil {
		return
	}
	t, addrs := &g.tracking, nodeAddrs(n)
	now := g.takenOver(d.list, addrs)
	if t.known { // later ones are not of before
		now = slices.DeleteFunc(now, func(k bpf.FlowKey) bool { return !isIn(t.left, k) })
	} else if len(now) > 0 {
		g.log.Info("connections of before are OVN's although their ports are not", "count", len(now))
	}
	if len(now) == 0 && len(t.left) > 0 {
		g.log.Info("no connection of before is left")
	}
	t.known, t.left = true, now
	g.calm.Store(len(now) == 0)
	g.noteUse(portUse(d.list, addrs, g.s.SNATPorts))
}

// takenOver returns the connections of before that are OVN's, as far as the host's
// sockets can be listed without those that are theirs.
func (g *Gateway) takenOver(tracked []ovs.Tracked, node []netip.Addr) []bpf.FlowKey {
	flows := takenOver(tracked, node, g.s.SNATPorts)
	if len(flows) == 0 {
		return nil
	}
	sockets, err := link.Sockets(1, math.MaxUint16)
	g.degraded(extraScan, err)
	return notHosts(flows, sockets)
}

// seedFlows brings the programs' table of connections in line: what is left of
// those of before. The first time conntrack is
// read once more, as loading the programs took a while in which pods went on connecting.
func (g *Gateway) seedFlows(ctx context.Context, n Node) error {
	t := &g.tracking
	if !t.known {
		return nil
	}
	if !t.seeded {
		if d := g.readTracked(ctx); d.err == nil {
			t.left = g.takenOver(d.list, nodeAddrs(n))
			g.calm.Store(len(t.left) == 0)
		}
		if err := g.bpf.SeedFlows(t.left); err != nil {
			return err
		}
		t.seeded = true
	}
	return g.bpf.Flows(func(k bpf.FlowKey, _ time.Duration) bool { return isIn(t.left, k) })
}

// noteUse publishes how full the SNAT range is, and says once of each remote
// that it is nearly full: the pods whose connections fail are not told.
func (g *Gateway) noteUse(uses []Use) {
	size := int(g.s.SNATPorts.Last) - int(g.s.SNATPorts.First) + 1
	said := map[Use]bool{}
	for _, u := range uses {
		if float64(u.Ports) < fullShare*float64(size) {
			continue
		}
		key := Use{Proto: u.Proto, Remote: u.Remote}
		if said[key] = true; !g.tracking.said[key] {
			g.log.Warn("the SNAT port range is nearly used up towards a remote: connections of pods to it will fail",
				"remote", u.Remote, "protocol", u.Proto, "used", u.Ports, "of", size)
		}
	}
	g.tracking.said = said
	g.mu.Lock()
	g.stats.PortUse, g.stats.SNATPorts = uses[:min(len(uses), mostUses)], size
	g.mu.Unlock()
}
