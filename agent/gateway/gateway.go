package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// Network is the name of the physical network in OVN's localnet ports.
	Network = "physnet"
	// resync is the time between rounds without a change. It is only a safety net, because all
	// inputs are watched. Optional parts that failed are retried in this interval, too.
	resync = 30 * time.Second
	// attachedCheck is the interval of checks whether programs are attached. Detaching a tcx link
	// causes no event.
	attachedCheck = 250 * time.Millisecond
)

// Gateway is the reconcile loop. It reads the host and makes each part apply its own state. No part
// refers to the Gateway. The package comment lists the parts. Exported methods are safe for
// concurrent use.
type Gateway struct {
	s        Settings
	log      *slog.Logger
	wake     loop.Signal
	view     *View
	record   *recorder
	inputs   *Inputs
	former   *formerAddresses
	tracker  *tracker
	services *Services
	topology *topology
	backend  backend

	wasInPlace bool // a round has succeeded, so corrections count as repairs; owned by the loop
}

// Options configures New.
type Options struct {
	Settings        Settings         // valid, see Settings.Validate
	OVS             *ovs.Client      // the caller closes it after Run
	Source          Source           // the cluster's Services, nodes and pods
	ShortcutManager *ShortcutManager // gets the programs when they are loaded; nil: no pod has shortcuts
	// Changed is called when the result of View.Node, View.Missing or Services.Redirects changes.
	// It must not block.
	Changed func()
	// BudgetChanged is called when the result of Services.OverBudget may have changed for a key. It
	// must not block. It may be nil.
	BudgetChanged func(service.Key)
	Log           *slog.Logger
}

// New returns a Gateway. It does nothing before Run.
func New(o Options) *Gateway {
	o.Settings = o.Settings.Defaulted()
	wake, record := loop.NewSignal(), newRecorder(o.Log)

	// The order is that of the dependencies: a part gets those before it.
	p := parts{
		s:      o.Settings,
		log:    o.Log,
		record: record,
		wake:   wake,
		host:   &hostUse{s: o.Settings, log: o.Log, record: record},
	}
	p.flows = newFlowTable(p, o.OVS)
	p.tracker = &tracker{s: o.Settings, log: o.Log, record: record, wake: wake, connected: p.flows.connected.Load}
	p.services = newServices(p, o)

	p.shortcuts = o.ShortcutManager
	if p.shortcuts == nil {
		p.shortcuts = NewShortcutManager(o.Settings, o.OVS, o.Log)
	}

	p.shortcuts.record = record
	former := newFormer(o.Settings.OVSRunDir, wake, o.Log)

	return &Gateway{
		s:        o.Settings,
		log:      o.Log,
		wake:     wake,
		record:   record,
		former:   former,
		tracker:  p.tracker,
		services: p.services,
		view: &View{
			s: o.Settings, changed: o.Changed, fault: "gateway: not started",
			cluster: o.Source.Addresses, addresses: newAddressKeeper(o.Settings, wake, o.Log),
		},
		inputs: &Inputs{wake: wake, readPeers: o.Source.Peers, former: former},
		topology: &topology{
			s:      o.Settings,
			ovs:    o.OVS,
			log:    o.Log,
			record: record,
			flows:  p.flows,
			routes: newRouteKeeper(o.Settings, wake, record, o.Changed, o.Log),
		},
		backend: newBackend(p),
	}
}

// Run keeps the gateway in its desired state until ctx ends. It then returns nil and leaves the
// programs attached and everything else in place. It must be called only once. A round that fails
// is repeated, and View.Missing has its error.
func (g *Gateway) Run(ctx context.Context) error {
	defer func() {
		g.services.close()

		if err := g.backend.close(); err != nil {
			g.log.Warn("cannot close programs", "error", err)
		}
	}()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.topology.watch(ctx, g.wake) })
	group.Go(func() error { return g.backend.run(ctx) })
	group.Go(func() error { return g.tracker.run(ctx) })
	group.Go(func() error { return g.former.run(ctx) })
	group.Go(func() error { return g.services.untranslated.run(ctx) })
	group.Go(func() error { return g.services.run(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "gateway",
			Wake:   g.wake,
			Resync: resync,
			Log:    g.log,
			Apply: func(ctx context.Context) error {
				err := g.apply(ctx)
				g.view.setFault(err)

				return err
			},
		})
	})

	return group.Wait()
}

// Trigger makes the gateway read the node and the cluster again.
func (g *Gateway) Trigger() { g.wake.Trigger() }

// Inputs returns the inputs from other parts of the agent.
func (g *Gateway) Inputs() *Inputs { return g.inputs }

// Services returns the gateway's part for Services.
func (g *Gateway) Services() *Services { return g.services }

// View returns the gateway's state as other parts of the agent see it.
func (g *Gateway) View() *View { return g.view }

// Stats returns counts and faults of the parts.
func (g *Gateway) Stats() Stats { return g.record.read() }

// Counters returns the backend's decisions, by reason. Programs count since the node's start, flows
// since Run began.
func (g *Gateway) Counters(ctx context.Context) ([]bpf.Counter, error) {
	return g.backend.counters(ctx)
}

// CheckHost returns an error if a gateway with these settings would harm the host in its current
// state. The error names the conflict. CheckHost needs no Gateway, and changes nothing.
func CheckHost(s Settings) error {
	h, err := observe(s.Wiring, knownAddresses{})
	if err != nil {
		return err
	}

	return errors.Join(checkDedicatedUplink(h, s), checkPorts(s.reserved()))
}

// CheckOverlap returns an error if an address or next hop of the host is in a network of pods or of
// the tunnels. The error names both. CheckOverlap needs no Gateway, and changes nothing.
func CheckOverlap(s Settings) error {
	h, err := observe(s.Wiring, knownAddresses{})
	if err != nil {
		return err
	}

	return checkOverlap(h, s)
}
