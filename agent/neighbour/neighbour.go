// Package neighbour resolves OVN's neighbours before the first packet. Its two parts are
// independent. Both have the kernel send the requests, by ARP or neighbour discovery.
//
// Tunnels (this file). OVS's userspace datapath drops packets to a tunnel endpoint while the
// link-layer address of its neighbour, the endpoint or the next hop to it, is unknown. The datapath
// learns from the replies to the host. It may fail to learn: it caches the flow of the replies, and
// a flow from before the bridge's device had its addresses does not learn. So the Resolver also
// passes it the addresses that the kernel has learned. The kernel datapath needs no help, as the
// kernel queues packets.
//
// Next hops (hops.go). A gateway router queues only few packets while its next hop is unknown, and
// does not notice when a next hop gets another link-layer address without announcing it. The kernel
// notices, because it asks again. So the Resolver has the kernel ask, and sends the gateway router
// a reply with the kernel's answer.
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

// Times of the probes of tunnel endpoints.
const (
	// While a neighbour is unknown, the waits between two probes double from firstWait to lastWait.
	// lastWait repeats forever, as a node may be down for long.
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
	Tunnels bool   // resolve tunnel endpoints, for the userspace datapath
	// NextHops returns the next hops that the gateway router shares with the host.
	NextHops func() NextHops
	// PatchPort returns the number of the bridge's port to OVN, or 0 if there is none yet.
	PatchPort func(context.Context) (uint32, error)
	// Changed is called when the result of MAC has changed, and when Fault may return other faults.
	// It must not block.
	Changed func()
	Log     *slog.Logger
}

// NextHops are the next hops of the gateway router. The host uses the same ones. The other fields
// are the device, MAC address and IP addresses that router and host share.
type NextHops struct {
	Device string       // of the host, by which the kernel reaches the next hops
	Hops   []netip.Addr // that the gateway router resolves
	// StandIns maps IPv6 next hops of IPv4 routes to the IPv4 addresses by which the gateway router
	// knows them (gateway.Node.StandIns). The router does not resolve these addresses: the
	// controller writes the link-layer address that MAC returns.
	StandIns map[netip.Addr]netip.Addr
	MAC      net.HardwareAddr
	Addrs    []netip.Addr // at most one per family
	VLAN     uint16       // tag between OVN and the bridge; 0: none
}

// Resolver resolves neighbours. Its methods are safe for concurrent use.
type Resolver struct {
	Options
	wake loop.Signal // for resolveTunnels

	refreshed time.Time // when all tunnel endpoints were last probed; owned by resolveTunnels
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

// resolveTunnels probes tunnel endpoints until ctx ends: at the start, soon after each event, and
// then at growing intervals while one is unknown.
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

		if wait > firstWait { // otherwise a burst of events would postpone the probe
			wait = firstWait
			timer.Reset(wait)
		}
	}
}

// probePeers probes the tunnel endpoints that are unknown, and all of them every refreshEvery. It
// reports whether it had to probe none.
func (r *Resolver) probePeers(ctx context.Context) (allKnown bool, err error) {
	due, err := r.duePeers(ctx)
	err = errors.Join(err, link.ProbeNeighbours(due))

	return len(due) == 0 && err == nil, err
}

// duePeers returns the neighbours to probe. It also gives the userspace datapath the link-layer
// addresses that only the kernel knows.
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

	// In layout direct, the bridge has the MAC address of the uplink, so the kernel may learn a
	// neighbour of the bridge's device at the uplink.
	uplink := r.NextHops().Device

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

// setPeer gives the userspace datapath the kernel's link-layer address of a tunnel endpoint, and
// reports whether it did. current is the address that the datapath has, or nil. Only an address
// that the kernel has confirmed replaces another one.
func (r *Resolver) setPeer(
	ctx context.Context,
	n link.Neighbour,
	current net.HardwareAddr,
	uplink string,
) (bool, error) {
	mac, confirmed, err := link.NeighbourMAC(n, uplink)
	if err != nil || mac == nil || bytes.Equal(mac, current) {
		return false, err
	}

	if current != nil && !confirmed {
		return false, nil
	}

	return true, ovs.SetTunnelNeighbour(ctx, r.RunDir, n.Device, n.Addr, mac)
}
