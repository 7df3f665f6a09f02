package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const (
	genevePort = 6081
	// Network is the physical network's name in OVN's localnet ports.
	Network = "physnet"
	// resync is only a safety net: everything is watched.
	resync = 30 * time.Second
)

// Settings are the parts of the gateway's configuration that do not change
// while it runs.
type Settings struct {
	Uplink       string
	Bridge       string
	Datapath     string // ovs.DatapathSystem or ovs.DatapathNetdev
	Userspace    bool   // Datapath is netdev
	Encap        netip.Prefix
	NextHops     []netip.Addr // nil: those of the default routes
	SNATPorts    bpf.PortRange
	NodePorts    bool
	ServiceCIDRs []netip.Prefix
	PodCIDRs     []netip.Prefix
	PinDir       string
	RunDir       string   // ours
	OVSRunDir    string   // has the bridges' .mgmt sockets
	NotHost      []string // devices whose addresses are not the node's
}

// CheckHost returns an error, which names what is wrong, when the host as it is
// now would suffer from a gateway with these settings.
func CheckHost(s Settings) error {
	h, err := observe(s.Uplink, s.Bridge)
	if err != nil {
		return err
	}
	return errors.Join(overlap(h, s), checkPorts(s.reserved()))
}

// Services is where the gateway reads the cluster's Services: nil and false
// as long as they are not known, which leaves the pinned table as it is.
type Services func() ([]*corev1.Service, bool)

// Gateway is the repair loop. Its methods are safe for concurrent use.
type Gateway struct {
	s        Settings
	ovs      *ovs.Client
	services Services
	changed  func() // called after Node or Missing has changed
	log      *slog.Logger
	wake     loop.Signal
	bpf      *bpf.Gateway // owned by the loop's goroutine
	applied  applied      // likewise
	flows    atomic.Bool  // flows must be looked at
	vswitchd atomic.Bool  // the OpenFlow connection is up

	mu    sync.Mutex // guards what follows
	node  Node
	known bool   // node is valid
	fault string // why the state is not the desired one, "" if it is
	stats Stats
}

// Stats count since the start.
type Stats struct {
	Repairs   map[string]uint64 // by part, after the first time it was right
	Listeners int               // sockets of the host that listen inside the SNAT range
}

// New returns a Gateway that does nothing yet. changed is called from its
// goroutine and must not block.
func New(s Settings, o *ovs.Client, services Services, changed func(), log *slog.Logger) *Gateway {
	s.Userspace = s.Datapath == ovs.DatapathNetdev
	return &Gateway{
		s: s, ovs: o, services: services, changed: changed, log: log, wake: loop.NewSignal(),
		fault: "gateway: not started", stats: Stats{Repairs: map[string]uint64{}},
	}
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
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{Name: "gateway", Wake: g.wake, Apply: g.step, Resync: resync, Log: g.log})
	})
	return group.Wait()
}

// Kick makes the gateway look at the Services again.
func (g *Gateway) Kick() { g.wake.Kick() }

// Node returns the node as last seen, and false before that.
func (g *Gateway) Node() (Node, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.node, g.known
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
	out := Stats{Repairs: map[string]uint64{}, Listeners: g.stats.Listeners}
	for k, v := range g.stats.Repairs {
		out.Repairs[k] = v
	}
	return out
}

func (g *Gateway) interesting(table, name string) bool {
	switch table {
	case "Open_vSwitch":
		return true
	case "Bridge", "Interface":
		return name == g.s.Bridge
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
	if g.bpf == nil {
		return
	}
	if err := g.bpf.Close(); err != nil {
		g.log.Warn("cannot close programs", "error", err)
	}
}
