package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const (
	genevePort = 6081
	// Network is the physical network's name in OVN's localnet ports.
	Network = "physnet"
	// resync is only a safety net: everything is watched.
	resync = 30 * time.Second
	// A link of tcx that somebody detaches tells nobody.
	attachedCheck = 250 * time.Millisecond
)

// CheckHost returns an error, which names what is wrong, when the host as it is
// now would suffer from a gateway with these settings.
func CheckHost(s Settings) error {
	h, err := observe(s.Uplink, s.Bridge)
	if err != nil {
		return err
	}
	return errors.Join(overlap(h, s), shared(h, s), checkPorts(s.reserved()))
}

// Gateway is the repair loop. Its methods are safe for concurrent use.
type Gateway struct {
	s       Settings
	ovs     *ovs.Client
	serving *serving
	changed func() // called after Node or Missing has changed
	log     *slog.Logger
	wake    loop.Signal

	formerWake loop.Signal // former has another

	bpf     *bpf.Gateway // owned by the loop's goroutine, nil without programs
	applied applied      // likewise
	extras  extras       // likewise
	idle    *bpf.Gateway // likewise, opened only to be detached

	tracking     tracking         // owned by the loop's goroutine
	moves        moves            // likewise
	planner      openflow.Planner // likewise: the flows that there should be
	written      ovs.FlowSync     // likewise
	counts       *ovs.FlowCounts  // of the OpenFlow backend
	flowServices *flowServices    // of the same; nil: nothing of Services is counted by flows

	flows    atomic.Bool                 // flows must be looked at
	peers    atomic.Bool                 // the peers must be read
	vswitchd atomic.Bool                 // the OpenFlow connection is up
	calm     atomic.Bool                 // no connection of before a takeover is left
	probe    sync.Mutex                  // one question at a time what is attached
	guarded  atomic.Pointer[bpf.Gateway] // has been attached everywhere
	counting atomic.Pointer[bpf.Gateway] // the programs, for who reads counts

	mu        sync.Mutex // guards what follows
	facts     facts
	dump      *dump // nil: none that the loop has not seen
	node      Node
	known     bool                                // node is valid
	former    map[netip.Addr]int                  // addresses that were the node's, and how often their connections were forgotten
	redirects map[bpf.ServiceKey]service.Redirect // local gateway mode: whereto the host sends what arrives for a front end
	fault     string                              // why the state is not the desired one, "" if it is
	stats     Stats
}

// Stats count since the start.
type Stats struct {
	Repairs   map[string]uint64 // by part, after the first time it was right
	Listeners int               // sockets of the host that listen inside the SNAT range
	SNATPorts int               // size of the SNAT range, 0: not known
	PortUse   []Use             // of the SNAT range towards the remotes where it is fullest, those first
	Degraded  map[string]string // what optional parts lack, by part; "" for nothing
}

// Options of New.
type Options struct {
	Settings Settings
	OVS      *ovs.Client
	Source   Source
	Changed  func() // called from the gateway's goroutine; must not block
	Log      *slog.Logger
}

// New returns a Gateway that does nothing yet.
func New(o Options) *Gateway {
	o.Settings.Layout = cmp.Or(o.Settings.Layout, Direct)
	o.Settings.Backend = cmp.Or(o.Settings.Backend, EBPF)
	g := &Gateway{
		s: o.Settings, ovs: o.OVS, serving: newServing(o.Source), changed: o.Changed, log: o.Log, wake: loop.NewSignal(),
		former: map[netip.Addr]int{}, formerWake: loop.NewSignal(), fault: "gateway: not started", stats: newStats(), counts: newFlowCounts(o.Settings), flowServices: newFlowServices(o.Settings),
	}
	if Inherited(g.s.RunDir) {
		g.written.Evict = ovs.PredecessorCookie
	}
	return g
}

// Run keeps the gateway in its desired state until ctx ends. Then it leaves
// the programs attached and everything else as it is, and returns nil.
func (g *Gateway) Run(ctx context.Context) error {
	ovsWake, stop := g.ovs.Watch(g.interesting)
	defer stop()
	defer g.close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return link.Watch(ctx, g.log, g.linkChanged) })
	group.Go(func() error {
		return ovs.WatchBridge(ctx, g.s.OVSRunDir, g.s.Bridge, g.flowsLost, g.vswitchdLost)
	})
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ovsWake:
				g.wake.Kick()
			}
		}
	})
	if g.s.CountsFlows() {
		group.Go(func() error { return g.counts.Run(ctx) })
	}
	group.Go(func() error { return g.guard(ctx) })
	group.Go(func() error { return g.track(ctx) })
	group.Go(func() error { return g.forgetFormer(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{Name: "gateway", Wake: g.wake, Apply: g.step, Resync: resync, Log: g.log})
	})
	return group.Wait()
}

// Kick makes the gateway look at the node and the cluster again.
func (g *Gateway) Kick() { g.wake.Kick() }

// ServiceChanged tells that what there is under a key has changed.
func (g *Gateway) ServiceChanged(k service.Key) {
	g.serving.changed(k)
	g.wake.Kick()
}

// SetInSync tells whether ovn-controller knows what the southbound database
// says. Until then OVN announces no address that is not this node's.
func (g *Gateway) SetInSync(is bool) {
	g.tell(func(f *facts) { f.inSync = is })
}

// PeersChanged tells that Source.Peers returns something else.
func (g *Gateway) PeersChanged() {
	g.peers.Store(true)
	g.wake.Kick()
}

// factsNow returns what the gateway was told. The peers are read at most once a round of
// the loop, for many of them come at once.
func (g *Gateway) factsNow() facts {
	read := g.peers.Swap(false) && g.serving.source.Peers != nil
	var known, hosts []netip.Addr
	if read {
		known, hosts = g.serving.source.Peers()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if read {
		g.facts.peers, g.facts.hosts = known, hosts
	}
	f := g.facts
	f.former = slices.Collect(maps.Keys(g.former))
	return f
}

// SetSubnets tells the node's pod subnets and the networks of the gateway routers.
func (g *Gateway) SetSubnets(pods, joins []netip.Prefix) {
	g.tell(func(f *facts) { f.pods, f.joins = pods, joins })
}

func (g *Gateway) tell(change func(*facts)) {
	g.mu.Lock()
	change(&g.facts)
	g.mu.Unlock()
	g.wake.Kick()
}

// Node returns the node as last seen, and false before that.
func (g *Gateway) Node() (Node, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.node, g.known
}

// Redirects returns, in local gateway mode, to whom the host's nftables are to
// send what arrives for a front end. The map is not changed any more.
func (g *Gateway) Redirects() map[bpf.ServiceKey]service.Redirect {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.redirects
}

// noteRedirects publishes them when they are others than before.
func (g *Gateway) noteRedirects() {
	if !g.s.Local || !g.serving.known {
		return
	}
	now := g.serving.redirects()
	g.mu.Lock()
	changed := !maps.EqualFunc(now, g.redirects, service.Redirect.Equal)
	g.redirects = now
	g.mu.Unlock()
	if changed {
		g.changed()
	}
}

// Missing says what keeps the gateway from being ready, or "".
func (g *Gateway) Missing() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fault
}

// Stats returns a copy.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.stats
	out.Repairs = map[string]uint64{}
	for k, v := range g.stats.Repairs {
		out.Repairs[k] = v
	}
	return out
}

// ServiceCounts returns what has arrived at the uplink for ports of Services,
// and how many of these are not counted for want of room.
func (g *Gateway) ServiceCounts() (counts []bpf.ServiceCount, uncounted int, err error) {
	if f := g.flowServices; f != nil {
		return f.counts(g.frontFlows)
	}
	if p := g.counting.Load(); p != nil {
		return p.ServiceCounts()
	}
	return nil, 0, nil
}

// FrontEnds returns the Service's port of every front end that is counted, or would be if there were
// room. It returns none where no Service is counted.
func (g *Gateway) FrontEnds() map[bpf.ServiceKey]bpf.ServicePort {
	if f := g.flowServices; f != nil {
		return f.frontEnds()
	}
	if p := g.counting.Load(); p != nil {
		return p.FrontEnds()
	}
	return nil
}

func (g *Gateway) interesting(table, name string) bool {
	switch table {
	case "Open_vSwitch":
		return true
	case "Bridge", "Port", "Interface":
		return name == g.s.Bridge || name == g.s.Uplink || strings.HasPrefix(name, "patch-"+g.s.Bridge)
	}
	return false
}

func (g *Gateway) linkChanged(device string) {
	if device == "" || device == g.s.Uplink || device == g.s.Bridge {
		g.wake.Kick()
	}
}

func (g *Gateway) flowsLost() {
	g.vswitchd.Store(true)
	g.flows.Store(true)
	g.wake.Kick()
}

func (g *Gateway) vswitchdLost() {
	g.vswitchd.Store(false)
	g.log.Warn("OpenFlow connection lost, flows will be written again", "bridge", g.s.Bridge)
	g.wake.Kick()
}

// step is one round of the loop.
func (g *Gateway) step(ctx context.Context) error {
	err := g.apply(ctx)
	fault := ""
	if err != nil {
		fault = fmt.Sprintf("gateway: %v", err)
	}
	g.mu.Lock()
	changed := g.fault != fault
	g.fault = fault
	g.mu.Unlock()
	if changed {
		g.changed()
	}
	return err
}

func (g *Gateway) publish(n Node) {
	g.mu.Lock()
	g.node, g.known = n, true
	g.mu.Unlock()
	g.changed()
}

// repaired counts a correction of something that was right before.
func (g *Gateway) repaired(part string) {
	g.log.Info("repaired", "part", part)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Repairs[part]++
}

func (g *Gateway) close() {
	g.closeExtras()
	if g.bpf == nil {
		return
	}
	if err := g.bpf.Close(); err != nil {
		g.log.Warn("cannot close programs", "error", err)
	}
}
