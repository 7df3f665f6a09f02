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
	"github.com/ovn-ebpf/ovn-ebpf/tokenbucket"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Source provides the objects that need frontends: Services with their EndpointSlices, and pods
// with host ports. The loop calls its functions, so they must not block. Callers must not modify
// the results.
type Source struct {
	Node    string                            // name of this node
	Keys    func() ([]service.Key, bool)      // of all objects; false: not known yet
	Objects func(service.Key) service.Objects // the current ones of a key, empty if deleted
	Zone    func() string                     // the node's zone, or ""
	// Nodes returns the number of the cluster's nodes. The gateway must be triggered when it
	// changes.
	Nodes func() int
	// Peers returns the addresses by which other nodes are known, and all addresses of their hosts,
	// each sorted. It is nil if there are no peers.
	Peers func() (known, hosts []netip.Addr)
	// Addresses returns the Node's InternalIPs and the gateway's addresses in its annotation, both
	// empty while the Node is not known. It may be nil.
	Addresses func() (internal, annotated []netip.Addr)
	// TrustedHosts returns those of the node's addresses that the whole cluster trusts. Only these
	// serve node ports. It may be nil: then all are trusted.
	TrustedHosts func([]netip.Prefix) []netip.Prefix
	// ControlPlane returns the servers at whose ports no frontend is served. The gateway must be
	// triggered when its result changes. It may be nil.
	ControlPlane func() model.ControlPlane
	// Refused is called when the parts of an object that this node does not serve have changed. It
	// gets the reasons, which are empty for an object that a budget refuses as a whole (see
	// Services.OverBudget). It must not block. It may be nil.
	Refused func(service.Key, []string)
}

// Services plans the frontends of Services and keeps their tables: those of the programs, those of
// the host's sockets, and the map from flow counters to Services.
//
// Its work has two halves. This file plans: it computes the desired tables from the objects.
// tables.go writes: it brings the kernel's tables in line with the desired ones. A change of an
// object marks its key as dirty, and the next plan reads the objects of dirty keys. Keys of a
// namespace that has changed too many entries stay dirty for some seconds (takeDue).
//
// Two loops do this work. The gateway's loop makes the first plan and the first write (plan,
// write). After that a separate loop plans and writes the changes of Services (run), with pauses in
// proportion to the work. It leaves a change to the gateway's loop if more than these tables
// changes, such as a Service address or a flow, and after an error.
//
// Exported methods are safe for concurrent use.
type Services struct {
	settings Settings
	source   Source
	log      *slog.Logger
	record   *recorder
	ownWake  loop.Signal // triggers run
	wake     loop.Signal // triggers the gateway's loop

	redirectsChanged func()
	budgetChanged    func(service.Key) // may be nil

	flowCounts   *flowServiceCounts // nil where flows do not count Services
	untranslated *untranslated

	redirects atomic.Pointer[map[verdict.ServiceKey]service.Redirect]
	programs  atomic.Pointer[bpf.Gateway] // programs with the frontends; nil: none. Set under mu
	// hostServed reports that the host's sockets reach Services without a route: their tables were
	// complete once, or are known not to work.
	hostServed atomic.Bool

	dirtyMu sync.Mutex // guards dirty; never held for long, because informers call Changed
	dirty   map[service.Key]bool

	mu sync.Mutex // guards the fields below
	servicePlans
	tableWriter
	pacer pacer
	// namespaces limits how many entries of the tables the objects of each namespace change.
	namespaces *tokenbucket.Set
	heldTimer  *time.Timer // triggers run when held keys are due; nil: none were held so far
}

// servicePlans is the desired state: the plans of all objects, and the tables that follow from
// them.
type servicePlans struct {
	accounts *model.Accounts // of all objects, served or not
	tables   *service.Tables
	node     service.Node // for which the plans are
	// planned means that every object has its plan. Before, the desired tables are incomplete and
	// nothing is written.
	planned bool
	// refused has the reasons why parts of a served object are not served (service.Plan.Refused), and
	// no empty lists. Objects that a budget refuses as a whole are in accounts.
	refused map[service.Key][]string
}

func newServices(p parts, o Options) *Services {
	return &Services{
		settings:         p.s,
		source:           o.Source,
		log:              p.log,
		record:           p.record,
		ownWake:          loop.NewSignal(),
		wake:             p.wake,
		redirectsChanged: o.Changed,
		budgetChanged:    o.BudgetChanged,
		flowCounts:       newFlowServiceCounts(p.s),
		untranslated:     newUntranslated(p),
		namespaces:       newEntryBuckets(),
		dirty:            map[service.Key]bool{},
		servicePlans: servicePlans{
			accounts: model.NewAccounts(p.s.Shares),
			tables:   service.NewTables(),
			refused:  map[service.Key][]string{},
		},
	}
}

// Changed must be called when the objects of a key have changed.
func (s *Services) Changed(k service.Key) {
	s.dirtyMu.Lock()
	s.dirty[k] = true
	s.dirtyMu.Unlock()
	s.ownWake.Trigger()
}

// OverBudget reports whether an object is not served because of a budget.
func (s *Services) OverBudget(k service.Key) bool {
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
	if s.flowCounts != nil {
		return s.flowCounts.read(s.readFlows)
	}

	if p := s.programs.Load(); p != nil {
		return p.ServiceCounts()
	}

	return nil, 0, nil
}

// Frontends returns the Service port of every frontend, counted or beyond the limit. It is empty
// where Services are not counted.
func (s *Services) Frontends() map[verdict.ServiceKey]bpf.ServicePort {
	if s.flowCounts != nil {
		return s.flowCounts.frontends()
	}

	if p := s.programs.Load(); p != nil {
		return p.Frontends()
	}

	return nil
}

// Redirected must be called in local gateway mode when the host's nftables redirect UDP frontends
// to other destinations than before. to has these frontends with their destinations. Connections to
// any other destination are deleted.
func (s *Services) Redirected(to map[netip.AddrPort][]netip.AddrPort) { s.untranslated.redirected(to) }

// run writes changes of Services until ctx ends.
func (s *Services) run(ctx context.Context) error {
	return loop.Run(ctx, loop.Options{Name: "services", Wake: s.ownWake, Apply: func(ctx context.Context) error {
		if s.rest(ctx) && !s.updateAlone() {
			s.wake.Trigger()
		}

		return nil
	}, Log: s.log})
}

// rest waits until the tables may change again, and returns false when ctx ends. Changes that come
// meanwhile are merged.
func (s *Services) rest(ctx context.Context) bool {
	s.mu.Lock()
	end := s.pacer.restEnd()
	s.mu.Unlock()

	return ctx.Err() == nil && loop.Pause(ctx, time.Until(end))
}

// updateAlone plans and writes the changes without a round of the gateway. It returns false if they
// need one.
func (s *Services) updateAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.pacer.startWork()()

	if !s.upToDate || s.settings.CountsFlows() {
		return false
	}

	before := s.tables.VIPs()
	s.planChanges(s.node)

	// The programs must learn an address before its ports.
	if !s.settings.NoGateway && !slices.Equal(before, s.tables.VIPs()) {
		s.upToDate = false
		return false
	}

	return s.writeTables() == nil // on an error the gateway's round writes again and reports
}

// checkReplaceable returns an error while the agent would replace a working backend of an earlier
// agent before it knows any Service. The new backend would pass connections to NodePorts to the
// host, which refuses them. It returns nil when:
//
//   - programs replace programs: they continue with the pinned tables
//   - the agent's flows are missing: then nothing decides about packets, and the host takes
//     precedence
func (s *Services) checkReplaceable(ctx context.Context) error {
	if _, known := s.source.Keys(); known {
		return nil
	}

	first, others, err := ovs.OwnFlows(ctx, s.settings.OVSRunDir, s.settings.Bridge)
	if err != nil {
		return nil // no bridge, or ovs-vswitchd is down: no backend is active
	}

	// Flows in other tables than the first are those of the OpenFlow backend, or, beside programs,
	// those of the hairpin.
	byPrograms, byFlows := first > 0 && hasGatewayPins(s.settings.PinDir), others > 0
	if byFlows && !byPrograms || byPrograms && s.settings.Backend == OpenFlow {
		return errors.New("Services are not known yet: the backend of an earlier agent stays active until then")
	}

	return nil
}

// plan updates the desired tables for a node. The caller must call write afterwards. plan returns
// the Service addresses that OVN owns, sorted.
func (s *Services) plan(h Host, n Node, f facts) (vips []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.pacer.startWork()()

	s.upToDate = false
	s.planChanges(s.serviceNode(h, n, f))

	if s.settings.NoGateway {
		return nil
	}

	return s.tables.VIPs()
}

// trustedOnly returns the node with those of its addresses at which the whole cluster serves node
// ports.
func (s *Services) trustedOnly(n Node) Node {
	if s.source.TrustedHosts != nil {
		n.HostCIDRs = s.source.TrustedHosts(n.HostCIDRs)
		n.Addresses = s.source.TrustedHosts(n.Addresses)
	}

	return n
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
		Name:      s.source.Node,
		Zone:      s.source.Zone(),
		NodePorts: set.NodePorts,
		Local:     set.Local,
		Lookup:    set.Backend == EBPF && set.NoEBPF == "",
		Addresses: nodeAddrs(s.trustedOnly(n)),
		Own:       ownAddrs(h, set),
		Hosts:     f.hosts,
		Nodes:     model.CountedNodes(s.source.Nodes()),
		Ephemeral: ephemeral,
		UDP:       openUDP(h, ephemeral),
		TCP:       loopbackTCP(h, ephemeral),
		Cluster: model.Config{
			Pods:                set.PodCIDRs,
			Services:            set.ServiceCIDRs,
			Join:                f.joins,
			ExternalIPs:         set.ExternalIPs,
			ControlPlane:        control,
			TrustEndpointSlices: set.TrustSlices,
		},
	}
}

// planChanges updates the desired tables for the changed keys that are due, and for those that a
// budget lets in or out because of the changes. On the first call, and when the node changed, it plans
// all of them. While the cluster's Services are not known, the kernel's tables stay as they are. The
// caller must hold mu.
func (s *Services) planChanges(n service.Node) {
	if !s.planned || !reflect.DeepEqual(n, s.node) {
		s.planAll(n)
	} else {
		s.planDue()
	}

	if s.planned {
		s.publishRedirects()
	}
}

// planAll plans all objects, if they are known. It does not count for the pace of their namespaces.
func (s *Services) planAll(n service.Node) {
	s.clearDirty() // before reading the objects, so that no later change is lost
	s.recordHeld()

	keys, known := s.source.Keys()
	if s.planned = known; !known {
		return
	}

	s.node = n
	s.planKeys(slices.Concat(keys, s.accounts.Keys())) // a deleted object still has a plan
}

// planDue plans the changed objects that are due. If an object wants a frontend that a held object no
// longer wants, the held one is planned, too.
func (s *Services) planDue() {
	for keys := s.takeDue(); len(keys) > 0; {
		entries := s.planKeys(keys)
		keys = nil

		for k, n := range entries {
			s.namespaces.Spend(k.Namespace, float64(n))
			keys = append(keys, s.takeHolders(k)...)
		}
	}

	s.recordHeld()
}

// recordHeld records how many changed objects are held.
func (s *Services) recordHeld() {
	s.dirtyMu.Lock()
	held := len(s.dirty) // and those that have changed during this round, for which there is another one
	s.dirtyMu.Unlock()

	s.record.change(func(stats *Stats) { stats.Held = held })
}

// planKeys plans the keys, and those that a budget lets in or out because of them. It returns the keys
// that it has planned, with the work that each of them causes, in entries of the tables.
func (s *Services) planKeys(keys []service.Key) map[service.Key]int {
	out := map[service.Key]int{}

	for k, meaning := range s.account(keys) {
		var p *service.Plan // nil: not served
		if s.accounts.Refused(k) == nil {
			p = service.New(meaning, &s.node)
		}

		if out[k] = s.tables.Set(k, p); out[k] == 0 {
			out[k] = p.Entries() / plansPerEntry
		}

		s.reportRefused(k, p)
	}

	return out
}

// account charges the objects of the keys to the budgets of their namespaces. It returns the
// meaning of these objects, and of all others that a budget lets in or out now. The caller must
// hold mu.
func (s *Services) account(keys []service.Key) map[service.Key]model.Meaning {
	meanings := map[service.Key]model.Meaning{}

	s.accounts.SetNodes(s.node.Nodes)

	for _, k := range keys {
		if _, repeated := meanings[k]; repeated {
			continue
		}

		meanings[k] = s.meaning(k)
		s.accounts.Set(k, meanings[k], s.node.Cluster)
	}

	for _, k := range s.accounts.Settle() {
		if _, changed := meanings[k]; !changed { // let in or out by the change of another object
			meanings[k] = s.meaning(k)
		}

		if s.budgetChanged != nil {
			s.budgetChanged(k)
		}
	}

	return meanings
}

// clearDirty forgets the changed keys.
func (s *Services) clearDirty() {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()

	clear(s.dirty)
}

// takeDue removes the changed keys that are due, and returns them. Keys of namespaces that have changed
// more entries than their pace permits are held, and run is triggered when the first of them is due. The
// API server's own Service is always due. The caller must hold mu.
func (s *Services) takeDue() (due []service.Key) {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()

	var shortest time.Duration // until the first held key is due; 0: none is held

	for k := range s.dirty {
		wait := s.namespaces.Wait(k.Namespace, 1)

		switch {
		case wait == 0 || k.Kind == model.KindService && model.IsAPIServerService(k.Namespace, k.Name):
			due = append(due, k)
			delete(s.dirty, k)
		case shortest == 0 || wait < shortest:
			shortest = wait
		}
	}

	if shortest > 0 {
		s.wakeAfter(shortest)
	}

	return due
}

// wakeAfter triggers run after d, instead of when an earlier call said.
func (s *Services) wakeAfter(d time.Duration) {
	if s.heldTimer == nil {
		s.heldTimer = time.AfterFunc(d, s.ownWake.Trigger)
	} else {
		s.heldTimer.Reset(d)
	}
}

// takeHolders removes the changed keys of objects that have frontends which they no longer want and
// which the object k wants, and returns them. The namespace of k pays for looking at the objects. The
// caller must hold mu.
func (s *Services) takeHolders(k service.Key) (out []service.Key) {
	for holder, frontends := range s.heldBefore(k) {
		now := service.New(s.meaning(holder), &s.node)
		s.namespaces.Spend(k.Namespace, float64(now.Entries()/plansPerEntry))

		if !now.HasAll(frontends) {
			out = append(out, holder)
		}
	}

	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()

	for _, holder := range out {
		delete(s.dirty, holder) // the caller reads its objects again, so that no later change is lost
	}

	return out
}

// heldBefore returns the frontends of the plan of k that held objects have, by these objects.
func (s *Services) heldBefore(k service.Key) map[service.Key][]verdict.ServiceKey {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()

	if len(s.dirty) == 0 {
		return nil // without looking at each frontend
	}

	held := s.tables.Preceding(k)
	maps.DeleteFunc(held, func(holder service.Key, _ []verdict.ServiceKey) bool { return !s.dirty[holder] })

	return held
}

// meaning returns the current objects of the key as the cluster's configuration interprets them.
// The caller must hold mu.
func (s *Services) meaning(k service.Key) model.Meaning {
	return s.source.Objects(k).Meaning(s.node.Cluster)
}

// reportRefused calls Source.Refused if the parts of an object that the node does not serve have
// changed.
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
		return
	}

	s.redirects.Store(&now)
	s.redirectsChanged()
}

// frontends returns all frontends, for a backend without tables.
func (s *Services) frontends() map[verdict.ServiceKey]verdict.ServiceOwner {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.tables.Frontends()
}
