package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Source provides the objects that need frontends: Services with their EndpointSlices, and pods
// with host ports. The loop calls its functions, so they must not block. Callers must not modify
// the results.
type Source struct {
	Node    string
	Keys    func() ([]service.Key, bool) // false: not known yet
	Objects func(service.Key) service.Objects
	Zone    func() string // the node's zone, or ""
	// Peers returns the addresses by which other nodes are known, and all addresses of their hosts,
	// each sorted. It is nil if there are no peers.
	Peers func() (known, hosts []netip.Addr)
	// Addresses returns the Node's InternalIPs and the gateway's addresses in its annotation, both
	// empty while the Node is not known. It may be nil.
	Addresses func() (internal, annotated []netip.Addr)
	// ControlPlane returns the servers at whose ports no frontend is served. The gateway must be
	// triggered when its result changes. It may be nil.
	ControlPlane func() model.ControlPlane
	// Refused is called with the reasons when the parts of an object that this node does not serve
	// have changed. It must not block. It may be nil.
	Refused func(service.Key, []string)
}

// Services plans the frontends of Services and keeps their tables: those of the programs, those of
// the host's sockets, and the map from flow counters to Services. The methods that write tables are
// in tables.go.
//
// The gateway's loop makes the first plan and the first write. After that a separate loop writes
// the changes of Services, with pauses in proportion to the work. It defers to the gateway's loop
// when more than these tables changes: a Service address, a flow, or after an error.
//
// Exported methods are safe for concurrent use.
type Services struct {
	settings Settings
	source   Source
	log      *slog.Logger
	record   *recorder
	loopWake loop.Signal
	wake     loop.Signal       // triggers the gateway's loop
	changed  func()            // called when the result of Redirects changes
	budgeted func(service.Key) // see Options.Budgeted; may be nil
	flows    *flowServices     // nil where flows do not count Services

	untranslated *untranslated

	redirects atomic.Pointer[map[verdict.ServiceKey]service.Redirect]
	programs  atomic.Pointer[bpf.Gateway] // programs with the frontends; nil: none. Set under mu
	// settled reports that the host's sockets reach Services without a route: their tables were
	// complete once, or are known not to work.
	settled atomic.Bool

	dirtyMu sync.Mutex // guards dirty; never held for long, because informers call Changed
	dirty   map[service.Key]bool

	mu sync.Mutex // guards the fields below

	// The plans.
	accounts *model.Accounts // of all objects, served or not
	tables   *service.Tables
	node     service.Node             // the node of the plans
	known    bool                     // the tables are complete
	refused  map[service.Key][]string // not empty
	current  bool                     // the plans are completely written

	// The kernel's tables.
	synced    bool // they hold the tables as of the last Changes
	wroteOnce bool // the first write is over
	// writes is the number of entries written or deleted since the start. Full syncs of the gateway's
	// table do not count.
	writes int

	// The programs for the host's own sockets.
	sock          *bpf.Sock
	lookup        *bpf.Lookup
	openedAt      time.Time // of the last attempt
	goneEndpoints []netip.AddrPort
	newFrontends  []verdict.ServiceKey // new frontends; sockets of the host may be older

	// worked is the time that planning and writing have taken since the last pause was over, and
	// lastEnded is when they ended last.
	worked    time.Duration
	lastEnded time.Time
}

func newServices(p parts, o Options) *Services {
	return &Services{
		settings:     p.s,
		source:       o.Source,
		log:          p.log,
		record:       p.record,
		loopWake:     loop.NewSignal(),
		wake:         p.wake,
		changed:      o.Changed,
		budgeted:     o.Budgeted,
		flows:        newFlowServices(p.s),
		untranslated: newUntranslated(p),
		dirty:        map[service.Key]bool{},
		accounts:     model.NewAccounts(p.s.Shares),
		tables:       service.NewTables(),
		refused:      map[service.Key][]string{},
	}
}

// Changed must be called when the objects of a key have changed.
func (s *Services) Changed(k service.Key) {
	s.dirtyMu.Lock()
	s.dirty[k] = true
	s.dirtyMu.Unlock()
	s.loopWake.Trigger()
}

// Refused reports whether an object is not served because of a budget.
func (s *Services) Refused(k service.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.accounts.Refused(k) != nil
}

// Redirects returns, in local gateway mode, the backends to which the host's nftables redirect
// packets for each frontend. The map is immutable.
func (s *Services) Redirects() map[verdict.ServiceKey]service.Redirect {
	if r := s.redirects.Load(); r != nil {
		return *r
	}

	return nil
}

// Counts returns the packets that arrived at the uplink for each Service port. uncounted is the
// number of ports beyond the limit.
func (s *Services) Counts() (counts []bpf.ServiceCount, uncounted int, err error) {
	if s.flows != nil {
		return s.flows.counts(s.readFlows)
	}

	if p := s.programs.Load(); p != nil {
		return p.ServiceCounts()
	}

	return nil, 0, nil
}

// Frontends returns the Service port of every frontend, counted or beyond the limit. It is empty
// where Services are not counted.
func (s *Services) Frontends() map[verdict.ServiceKey]bpf.ServicePort {
	if s.flows != nil {
		return s.flows.frontends()
	}

	if p := s.programs.Load(); p != nil {
		return p.Frontends()
	}

	return nil
}

// Redirected must be called in local gateway mode when the host's nftables redirect UDP frontends
// to other destinations than before. Connections to others are deleted.
func (s *Services) Redirected(to map[netip.AddrPort][]netip.AddrPort) { s.untranslated.redirected(to) }

// run writes changes of Services until ctx ends.
func (s *Services) run(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{Name: "services", Wake: s.loopWake, Apply: func(ctx context.Context) error {
		if s.rest(ctx) && !s.update() {
			s.wake.Trigger()
		}

		return nil
	}, Log: s.log})
}

// Limits of the time that changes of Services take. Services with thousands of frontends that come
// and go again and again would keep the node's CPUs busy otherwise, and pods would start late.
const (
	restFactor  = 15 // a pause is this much longer than the work before it
	longestRest = time.Second
)

// rest waits until the tables may change again, and returns false when ctx ends. Changes that come
// meanwhile are merged. The time since the last work counts, so a change after a quiet time does
// not wait.
func (s *Services) rest(ctx context.Context) bool {
	s.mu.Lock()
	end := s.restEnd()
	s.mu.Unlock()

	return ctx.Err() == nil && loop.Pause(ctx, time.Until(end))
}

// restEnd returns when the tables may change again. The caller must hold the lock.
func (s *Services) restEnd() time.Time { return s.lastEnded.Add(min(restFactor*s.worked, longestRest)) }

// work counts the time that planning or writing takes. The caller must hold the lock until it calls
// the result.
func (s *Services) work() (end func()) {
	began := time.Now()
	if !began.Before(s.restEnd()) {
		s.worked = 0
	}

	return func() {
		s.lastEnded = time.Now()
		s.worked += s.lastEnded.Sub(began)
	}
}

// update plans and writes the changes. It returns false if a round of the gateway must do it.
func (s *Services) update() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	if !s.current || s.settings.CountsFlows() {
		return false
	}

	before := s.tables.VIPs()
	s.planChanges(s.node)

	// The programs must learn an address before its ports.
	if !s.settings.NoGateway && !slices.Equal(before, s.tables.VIPs()) {
		s.current = false
		return false
	}

	return s.writeTables() == nil // on an error the gateway's round writes again and reports
}

// await returns an error while writing would replace a working backend of an earlier agent before
// any Service is known. The new backend would pass connections to NodePorts to the host, which
// refuses them. It does not wait when:
//
//   - programs replace programs: they continue with the pinned tables
//   - the agent's flows are missing: then nothing decides about packets, and the host takes
//     precedence
func (s *Services) await(ctx context.Context) error {
	if _, known := s.source.Keys(); known {
		return nil
	}

	first, others, err := ovs.OwnFlows(ctx, s.settings.OVSRunDir, s.settings.Bridge)
	if err != nil {
		return nil // no bridge, or ovs-vswitchd is down: no backend is active
	}

	byPrograms, byFlows := first > 0 && deciding(s.settings.PinDir), others > 0
	if byFlows && !byPrograms || byPrograms && s.settings.Backend == OpenFlow {
		return errors.New("Services are not known yet: the backend of an earlier agent stays active until then")
	}

	return nil
}

// plan plans everything for a node. The plans are kept until write. It returns the Service addresses
// that OVN owns, sorted.
func (s *Services) plan(h Host, n Node, f facts) (vips []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	s.current = false
	s.planChanges(s.serviceNode(h, n, f))

	if s.settings.NoGateway {
		return nil
	}

	return s.tables.VIPs()
}

// serviceNode returns the node as input of the plans.
func (s *Services) serviceNode(h Host, n Node, f facts) service.Node {
	set := s.settings
	ephemeral := set.ephemeral(h)

	var control model.ControlPlane
	if s.source.ControlPlane != nil {
		control = s.source.ControlPlane()
	}

	return service.Node{
		Ephemeral: ephemeral, UDP: openUDP(h, ephemeral), TCP: loopbackTCP(h, ephemeral),
		Name: s.source.Node, Zone: s.source.Zone(), NodePorts: set.NodePorts,
		Local: set.Local, Lookup: set.Backend == EBPF && set.NoEBPF == "",
		Addresses: nodeAddrs(n), Own: ownAddrs(h, set), Hosts: f.hosts,
		Cluster: model.Config{
			Pods: set.PodCIDRs, Services: set.ServiceCIDRs, Join: f.joins,
			ExternalIPs: set.ExternalIPs, ControlPlane: control, TrustEndpointSlices: set.TrustSlices,
		},
	}
}

// planChanges updates the tables for the changed keys, and for those that a budget lets in or out
// because of the changes. On the first call, and when the node changed, it plans all of them. While
// the cluster state is unknown, the kernel's tables stay as they are. The caller must hold the lock.
func (s *Services) planChanges(n service.Node) {
	keys := s.takeDirty() // before reading the objects
	if !s.known || !reflect.DeepEqual(n, s.node) {
		all, ok := s.source.Keys()
		if s.known = ok; !ok {
			return
		}

		// A deleted object still has a plan.
		keys = slices.Concat(all, s.accounts.Keys())
		s.node = n
	}

	read := map[service.Key]model.Meaning{}

	for _, k := range keys {
		if _, again := read[k]; again {
			continue
		}

		read[k] = s.meaning(k)
		s.accounts.Set(k, read[k], s.node.Cluster)
	}

	for _, k := range s.accounts.Settle() {
		if _, is := read[k]; !is { // let in or out by the change of another object
			read[k] = s.meaning(k)
		}

		if s.budgeted != nil {
			s.budgeted(k)
		}
	}

	for k, m := range read {
		var p *service.Plan
		if s.accounts.Refused(k) == nil {
			p = service.New(m, &s.node)
		}

		s.tables.Set(k, p)
		s.reportRefused(k, p)
	}

	s.publishRedirects()
}

// takeDirty returns and clears the changed keys.
func (s *Services) takeDirty() []service.Key {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()

	out := slices.Collect(maps.Keys(s.dirty))
	clear(s.dirty)

	return out
}

func (s *Services) meaning(k service.Key) model.Meaning {
	return s.source.Objects(k).Meaning(s.node.Cluster)
}

// reportRefused reports a change of what the node refuses of an object.
func (s *Services) reportRefused(k service.Key, p *service.Plan) {
	var now []string
	if p != nil {
		now = p.Refused
	}

	if slices.Equal(now, s.refused[k]) {
		return
	}

	if s.refused[k] = now; len(now) == 0 {
		delete(s.refused, k)
	}

	if s.source.Refused != nil {
		s.source.Refused(k, now)
	}
}

// publishRedirects publishes, in local gateway mode, the redirects if they changed.
func (s *Services) publishRedirects() {
	if !s.settings.Local {
		return
	}

	now := s.tables.Redirects()
	if maps.EqualFunc(now, s.Redirects(), service.Redirect.Equal) {
		s.redirects.CompareAndSwap(nil, &now)
		return
	}

	s.redirects.Store(&now)
	s.changed()
}

// frontends returns all frontends, for a backend without tables.
func (s *Services) frontends() map[verdict.ServiceKey]verdict.ServiceOwner {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.tables.Frontends()
}
