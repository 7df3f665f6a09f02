package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
	// A tcx link that is detached causes no event.
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

// Gateway is the repair loop: it reads the host, and has each part bring its own state in line.
// No part knows the Gateway. Exported methods are safe for concurrent use.
type Gateway struct {
	s        Settings
	log      *slog.Logger
	wake     loop.Signal
	view     *view
	record   *recorder
	inputs   *Inputs
	former   *former
	tracker  *tracker
	services *Services
	topology *topology
	backend  backend
	repair   bool // everything was right once; owned by the loop
}

// Options of New.
type Options struct {
	Settings Settings
	OVS      *ovs.Client
	Source   Source
	// Changed is called when Node, Missing or Services.Redirects returns something else. It must not
	// block.
	Changed func()
	Log     *slog.Logger
}

// New returns a Gateway that does nothing yet.
func New(o Options) *Gateway {
	o.Settings = o.Settings.Defaulted()
	wake, record := loop.NewSignal(), newRecorder(o.Log)
	p := parts{s: o.Settings, log: o.Log, record: record, wake: wake, host: &hostUse{s: o.Settings, log: o.Log, record: record}}
	p.flows = newFlowTable(p, o.OVS)
	p.tracker = &tracker{s: o.Settings, log: o.Log, record: record, wake: wake, connected: p.flows.connected}
	p.services = &Services{
		s: o.Settings, log: o.Log, record: record, own: loop.NewSignal(), wake: wake, changed: o.Changed,
		flows: newFlowServices(o.Settings), serving: newServing(o.Source),
	}
	former := newFormer(o.Settings.OVSRunDir, wake, o.Log)
	return &Gateway{
		s: o.Settings, log: o.Log, wake: wake, record: record, former: former, tracker: p.tracker, services: p.services,
		view:     &view{changed: o.Changed, fault: "gateway: not started"},
		inputs:   &Inputs{wake: wake, readPeers: o.Source.Peers, former: former},
		topology: &topology{s: o.Settings, ovs: o.OVS, log: o.Log, record: record, flows: p.flows},
		backend:  newBackend(p),
	}
}

// Run keeps the gateway in its desired state until ctx ends. Then it leaves
// the programs attached and everything else as it is, and returns nil.
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
	group.Go(func() error { return g.services.run(ctx) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{Name: "gateway", Wake: g.wake, Resync: resync, Log: g.log, Apply: func(ctx context.Context) error {
			err := g.apply(ctx)
			g.view.setFault(err)
			return err
		}})
	})
	return group.Wait()
}

// Trigger makes the gateway look at the node and the cluster again.
func (g *Gateway) Trigger() { g.wake.Trigger() }

// Inputs returns what other parts of the agent tell the gateway.
func (g *Gateway) Inputs() *Inputs { return g.inputs }

// Services returns what the gateway does for Services.
func (g *Gateway) Services() *Services { return g.services }

// Node returns the node as last seen, and false before that.
func (g *Gateway) Node() (Node, bool) { return g.view.get() }

// Missing returns what keeps the gateway from being ready, or "".
func (g *Gateway) Missing() string { return g.view.missing() }

// Stats returns a copy.
func (g *Gateway) Stats() Stats { return g.record.read() }

// Counters returns what the backend has decided, by reason: programs since the node's start, flows
// since Run began.
func (g *Gateway) Counters(ctx context.Context) ([]bpf.Counter, error) {
	return g.backend.counters(ctx)
}

// view is what other parts of the agent see of the gateway. Its methods are safe for concurrent
// use.
type view struct {
	changed func()

	mu    sync.Mutex // guards what follows
	node  Node
	known bool   // node is valid
	fault string // why the state is not the desired one, "" if it is
}

func (v *view) get() (Node, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node, v.known
}

func (v *view) missing() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fault
}

// setNode publishes a node that is not as it was.
func (v *view) setNode(n Node, s Settings, log *slog.Logger) {
	v.mu.Lock()
	same := reflect.DeepEqual(n, v.node)
	if !same {
		v.node, v.known = n, true
	}
	v.mu.Unlock()
	if same {
		return
	}
	v.changed()
	for _, p := range n.stranded() {
		log.Warn("no next hop: no default route by the uplink and no --gateway-nexthop; pods reach only its own network",
			"uplink", s.Uplink, "address", p)
	}
}

// setFault publishes the result of a round of the loop.
func (v *view) setFault(err error) {
	fault := ""
	if err != nil {
		fault = fmt.Sprintf("gateway: %v", err)
	}
	v.mu.Lock()
	changed := v.fault != fault
	v.fault = fault
	v.mu.Unlock()
	if changed {
		v.changed()
	}
}

// observe reads the host. The addresses that the node has been known by are preferred.
func (v *view) observe(s Settings) (Host, error) {
	h, err := observe(s.Uplink, s.Bridge)
	n, _ := v.get()
	h.InUse = addrsOf(n.Addresses)
	return h, err
}
