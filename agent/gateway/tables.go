package gateway

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
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

// serving keeps the Service tables. Only changed is safe for concurrent use.
type serving struct {
	source Source

	mu    sync.Mutex // guards dirty
	dirty map[service.Key]bool

	accounts      *model.Accounts   // of all objects, served or not
	budgeted      func(service.Key) // see Options.Budgeted; may be nil
	tables        *service.Tables
	node          service.Node             // the node of the plans
	known         bool                     // the tables are complete
	syncedWriters writers                  // hold the tables as of the last Changes
	refused       map[service.Key][]string // not empty
	// writes is the number of entries written or deleted since the start. Full syncs of the gateway's
	// table do not count.
	writes        int
	goneEndpoints []netip.AddrPort
	wroteOnce     bool                 // the first write is over
	newFrontends  []verdict.ServiceKey // new frontends; sockets of the host may be older
}

// writers are the tables to write. A nil table is skipped.
type writers struct {
	gateway *bpf.Gateway
	sock    *bpf.Sock
	lookup  *bpf.Lookup
	flows   *flowServices // set where flows count
}

func newServing(source Source, shares model.Shares) *serving {
	return &serving{
		source:   source,
		dirty:    map[service.Key]bool{},
		refused:  map[service.Key][]string{},
		accounts: model.NewAccounts(shares),
		tables:   service.NewTables(),
	}
}

// changed records that the objects of a key have changed.
func (s *serving) changed(k service.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.dirty[k] = true
}

// takeDirty returns and clears the changed keys.
func (s *serving) takeDirty() []service.Key {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := slices.Collect(maps.Keys(s.dirty))
	clear(s.dirty)

	return out
}

// plan updates the tables for the changed keys, and for those that a budget lets in or out because
// of the changes. On the first call, and when the node changed, it plans all of them. It returns
// false while the cluster state is unknown; then the kernel's tables stay as they are.
func (s *serving) plan(n service.Node) bool {
	keys := s.takeDirty() // before reading the objects
	if !s.known || !reflect.DeepEqual(n, s.node) {
		all, ok := s.source.Keys()
		if s.known = ok; !ok {
			return false
		}

		// A deleted object still has a plan.
		keys = slices.Concat(all, s.accounts.Keys())
		s.node = n
	}

	read, moved := map[service.Key]model.Meaning{}, map[service.Key]bool{}
	for _, k := range keys {
		if _, again := read[k]; again {
			continue
		}

		read[k] = s.meaning(k)
		for _, o := range s.accounts.Set(k, read[k], s.node.Cluster) {
			moved[o] = true
			if s.budgeted != nil {
				s.budgeted(o)
			}
		}
	}

	for k := range moved { // let in or out by the change of another object
		if _, is := read[k]; !is {
			read[k] = s.meaning(k)
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

	return true
}

func (s *serving) meaning(k service.Key) model.Meaning {
	return s.source.Objects(k).Meaning(s.node.Cluster)
}

// reportRefused reports a change of what the node refuses of an object.
func (s *serving) reportRefused(k service.Key, p *service.Plan) {
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

// write writes the changes to the kernel's tables. On the first call, and after an error, it writes
// everything. A full table is not an error: it gets what it has room for, see
// bpf.Gateway.Unwritten.
func (s *serving) write(to writers) error {
	if !s.known {
		return nil
	}

	c := s.tables.Changes()

	s.goneEndpoints = append(s.goneEndpoints, c.Gone...)
	if s.wroteOnce { // before that, sockets may have reached their frontends without programs
		s.newFrontends = append(s.newFrontends, c.New...)
	}

	s.wroteOnce = true
	full := s.syncedWriters != to
	s.syncedWriters = writers{} // unknown until the write succeeds

	var errs []error

	if l := to.lookup; l != nil && (full || len(c.Lookups)+len(c.Unlookups) > 0) {
		// Socket lookups come before the gateway's table: it sends packets for these sockets to the
		// host.
		n, err := l.Sync(s.tables.Lookups())
		s.writes += n

		errs = append(errs, err)
	}

	if g := to.gateway; g != nil && full {
		errs = append(errs, g.SyncServices(s.tables.Frontends()), g.SyncServiceCounts(s.tables.Counts()))
	} else if g != nil {
		n, err := g.UpdateServices(c.Set, c.Unset)
		s.writes += n

		errs = append(errs, err, g.CountServices(c.Counts))
	}

	if f := to.flows; f != nil && full {
		f.set(s.tables.Counts(), true)
	} else if f != nil {
		f.set(c.Counts, false)
	}

	if to.sock != nil {
		if err := s.writeSockets(to.sock, c.Sockets, full); err != nil {
			errs = append(errs, sockError{err})
		}
	}

	err := errors.Join(errs...)
	if err == nil {
		s.syncedWriters = to
	}

	return err
}

// sockError is an error of the host's socket tables. The node works without them.
type sockError struct{ error }

func (e sockError) Unwrap() error { return e.error }

func (s *serving) writeSockets(sock *bpf.Sock, changes []bpf.SockService, full bool) error {
	err := sock.SyncAddrs(s.node.Own)

	var (
		n         int
		updateErr error
	)
	if full {
		n, updateErr = sock.SyncServices(s.tables.Sockets())
	} else if len(changes) > 0 {
		n, updateErr = sock.UpdateServices(changes)
	}

	s.writes += n
	for _, a := range sock.GoneUDP() { // includes endpoints removed while no agent ran
		if !s.tables.Answers(a) {
			s.goneEndpoints = append(s.goneEndpoints, a)
		}
	}

	return errors.Join(err, updateErr)
}

// takeGone returns removed UDP endpoints and clears the list.
func (s *serving) takeGone() []netip.AddrPort {
	out := s.goneEndpoints
	s.goneEndpoints = nil

	slices.SortFunc(out, netip.AddrPort.Compare)

	return slices.DeleteFunc(slices.Compact(out), s.tables.Answers) // the endpoint may be back
}

// destroy destroys UDP sockets of the host: those that a frontend connected to removed endpoints,
// and those that connected to a frontend before it existed. Without programs for sockets (nil)
// there are none. It retries failures on the next call. If the kernel does not support it, the
// error wraps link.ErrNoSocketDestroy.
func (s *serving) destroy(sock *bpf.Sock) error {
	gone := s.takeGone()
	if sock == nil {
		s.newFrontends = nil
		return nil
	}

	_, err := link.DestroyUDP(gone, sock.Translated)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.goneEndpoints = gone
	}

	if err != nil || s.syncedWriters.sock == nil {
		return err // without programs, a client that connects again would not be translated
	}

	older := s.newFrontends
	s.newFrontends = nil

	frontends := s.tables.SocketFrontends(older, s.node.Own)

	_, err = link.DestroyUntranslatedUDP(frontends, s.node.Own, sock.Translated)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.newFrontends = older
	}

	return err
}

// vips returns the addresses of kind verdict.AddrVIP, sorted.
func (s *serving) vips() []netip.Addr { return s.tables.VIPs() }

// frontends returns the gateway's whole table, for a backend without maps.
func (s *serving) frontends() map[verdict.ServiceKey]verdict.ServiceOwner {
	return s.tables.Frontends()
}

// redirects returns the targets to which the host's nftables redirect packets for each frontend in
// local gateway mode. A frontend with several targets uses one of them.
func (s *serving) redirects() map[verdict.ServiceKey]service.Redirect { return s.tables.Redirects() }
