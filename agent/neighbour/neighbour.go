// Package neighbour resolves OVN's neighbours before the first packet, and keeps next hops as the
// kernel has them.
//
// OVS's userspace datapath drops packets to the other end of a tunnel while its neighbour is
// unknown. It learns from replies to the host's own ARP and neighbour discovery, so the kernel
// sends the requests. The kernel datapath needs no help with tunnels, as the kernel queues packets.
//
// A gateway router queues only few packets while its next hop is unknown, and does not notice when
// a next hop gets another link-layer address without announcing it. The kernel notices: it asks
// again. So the Resolver has the kernel ask, and gives the gateway router the kernel's answer.
//
// The userspace datapath may fail to learn: it caches the flow of the replies, and a flow from
// before the bridge's device had its addresses does not learn. So the Resolver also passes it the
// addresses that the kernel has learned.
package neighbour

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Times of the probes of tunnels' other ends.
const (
	// An unknown neighbour is probed after these waits; the last one repeats forever, as a node may
	// be down for long.
	firstWait = 200 * time.Millisecond
	lastWait  = time.Minute
	// refreshEvery is well below the 15 minutes after which the userspace datapath expires an idle
	// neighbour.
	refreshEvery = 5 * time.Minute
)

// Options configure a Resolver.
type Options struct {
	OVS     *ovs.Client
	RunDir  string // of OVS
	Bridge  string // the gateway's bridge
	Tunnels bool   // the userspace datapath sends to the tunnels' other ends
	// NextHops returns the next hops that the gateway router shares with the host.
	NextHops func() NextHops
	// PatchPort returns the number of the bridge's port to OVN, or 0 if there is none yet.
	PatchPort func(context.Context) (uint32, error)
	Changed   func() // called when the result of Fault or MAC changes; must not block
	Log       *slog.Logger
}

// NextHops are next hops of the gateway router, and what it shares with the host.
type NextHops struct {
	Device string // the host's
	Hops   []netip.Addr
	// StandIns has IPv6 next hops of IPv4 routes. The values are the addresses by which the gateway
	// router knows them. The router does not resolve these: the controller writes the link-layer
	// address that MAC returns.
	StandIns map[netip.Addr]netip.Addr
	MAC      net.HardwareAddr
	Addrs    []netip.Addr // at most one per family
	VLAN     uint16       // between OVN and the bridge
}

// Resolver resolves neighbours. Its methods are safe for concurrent use.
type Resolver struct {
	Options
	wake loop.Signal

	refreshed time.Time // when all tunnels' other ends were probed last; owned by resolveTunnels
	hops      *hops
}

// New returns a Resolver that does not run yet.
func New(o Options) *Resolver {
	return &Resolver{Options: o, wake: loop.NewSignal(), hops: newHops()}
}

// Trigger notes that the result of NextHops may have changed.
func (r *Resolver) Trigger() {
	r.wake.Trigger()
	r.hops.wake.Trigger()
}

// Run keeps neighbours resolved until ctx ends. Then it returns nil.
func (r *Resolver) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.followHops(ctx) })
	group.Go(func() error { return r.resolveTunnels(ctx) })

	return group.Wait()
}

// resolveTunnels resolves the other ends of tunnels.
func (r *Resolver) resolveTunnels(ctx context.Context) error {
	changed := loop.NewSignal()

	// Tunnels, and the bridge's device: the userspace datapath forgets the neighbours of a
	// recreated device.
	relevant := func(table, name string) bool {
		return table == "Interface" && (strings.HasPrefix(name, "ovn") || name == r.Bridge)
	}

	stop := r.OVS.Watch(relevant, changed)
	defer stop()

	lastError, wait := "", firstWait

	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			allKnown, err := r.probePeers(ctx)

			text := ""
			if err != nil && ctx.Err() == nil {
				text = err.Error()
			}

			if text != lastError && text != "" {
				r.Log.Warn("cannot resolve neighbours", "error", err)
			}

			lastError = text

			if allKnown {
				wait = lastWait
			}

			timer.Reset(wait)
			wait = min(2*wait, lastWait)

			continue
		case <-changed:
		case <-r.wake:
		}

		if wait > firstWait { // otherwise a burst of events would postpone it
			wait = firstWait
			timer.Reset(wait)
		}
	}
}

// probePeers probes tunnels' other ends that are unknown, and all of them every refreshEvery. It
// reports whether none had to be probed.
func (r *Resolver) probePeers(ctx context.Context) (allKnown bool, err error) {
	due, err := r.duePeers(ctx)
	err = errors.Join(err, link.ProbeNeighbours(due))

	return len(due) == 0 && err == nil, err
}

// duePeers returns the neighbours to probe. It also gives the userspace datapath the addresses that
// only the kernel knows.
func (r *Resolver) duePeers(ctx context.Context) ([]link.Neighbour, error) {
	if !r.Tunnels {
		return nil, nil
	}

	peers, err := r.OVS.TunnelPeers(ctx)
	if err != nil || len(peers) == 0 {
		return nil, err
	}

	known, err := ovs.TunnelNeighbours(ctx, r.RunDir)
	if err != nil {
		return nil, err
	}

	now := time.Now()

	refresh := now.Sub(r.refreshed) >= refreshEvery
	if refresh {
		r.refreshed = now
	}

	uplink := r.NextHops().Device // where the uplink's MAC is the bridge's too, answers arrive there

	var (
		out  []link.Neighbour
		errs []error
	)

	seen := map[link.Neighbour]bool{}

	for _, p := range peers {
		n, err := link.NeighbourTowards(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if seen[n] {
			continue
		}

		seen[n] = true
		set, err := r.setPeer(ctx, n, known[n.Addr], uplink)
		errs = append(errs, err)

		if refresh || known[n.Addr] == nil && !set {
			out = append(out, n)
		}
	}

	return out, errors.Join(errs...)
}

// setPeer gives the userspace datapath the link-layer address that the kernel has for a tunnel's
// other end, if it lacks it or has another. It reports whether it did.
func (r *Resolver) setPeer(
	ctx context.Context,
	n link.Neighbour,
	has net.HardwareAddr,
	uplink string,
) (bool, error) {
	mac, confirmed, err := link.NeighbourMAC(n, uplink)
	if err != nil || mac == nil || bytes.Equal(mac, has) || has != nil && !confirmed {
		return false, err
	}

	return true, ovs.SetTunnelNeighbour(ctx, r.RunDir, n.Device, n.Addr, mac)
}
