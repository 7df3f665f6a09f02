package gateway

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Source is where the gateway reads what asks for front ends: Services with
// their EndpointSlices, and pods with host ports. Its functions are called from
// the loop and must not block; what they return is not changed.
type Source struct {
	Node    string
	Keys    func() ([]service.Key, bool) // false: they are not known yet
	Objects func(service.Key) service.Objects
	Zone    func() string // the node's, "" if it has none
	// Peers returns the addresses by which the other nodes are known, and all of their
	// hosts', each sorted. Nil: there are none.
	Peers func() (known, hosts []netip.Addr)
}

// serving keeps the tables of Services. Only changed is safe for concurrent use.
type serving struct {
	source Source

	mu    sync.Mutex // guards dirty
	dirty map[service.Key]bool

	tables *service.Tables
	node   service.Node // the plans are for it
	known  bool         // the tables have everything
	to     writers      // hold what the tables said at the last Changes
	writes int          // entries written or deleted since the start, but for full syncs of the gateway's table
	gone   []netip.AddrPort
}

// writers are the tables that are written to. A nil one is left out.
type writers struct {
	gateway *bpf.Gateway
	sock    *bpf.Sock
	lookup  *bpf.Lookup
	flows   *flowServices // where flows count
}

func newServing(source Source) *serving {
	return &serving{source: source, dirty: map[service.Key]bool{}, tables: service.NewTables()}
}

// changed notes that the objects of a key have changed.
func (s *serving) changed(k service.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty[k] = true
}

// takeDirty returns the keys that have changed since the last time.
func (s *serving) takeDirty() []service.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]service.Key, 0, len(s.dirty))
	for k := range s.dirty {
		out = append(out, k)
	}
	clear(s.dirty)
	return out
}

// plan brings the tables in line with the cluster: with what has changed, or
// with everything, the first time and for another node. It returns false as
// long as the cluster is not known: then the kernel's tables stay as they are.
func (s *serving) plan(n service.Node) bool {
	keys := s.takeDirty() // before the objects are read
	if !s.known || !reflect.DeepEqual(n, s.node) {
		all, ok := s.source.Keys()
		if s.known = ok; !ok {
			return false
		}
		// What is gone has a plan, but no objects any more.
		keys = slices.Concat(all, s.tables.Keys())
		s.node = n
	}
	for _, k := range keys {
		s.tables.Set(k, service.New(s.source.Objects(k).Meaning(s.node.Cluster), &s.node))
	}
	return true
}

// write brings the kernel's tables in line: with what has changed, or with
// everything, the first time and after an error.
func (s *serving) write(to writers) error {
	if !s.known {
		return nil
	}
	c := s.tables.Changes()
	s.gone = append(s.gone, c.Gone...)
	full := s.to != to
	s.to = writers{} // nothing is sure before it is done
	var errs []error
	if l := to.lookup; l != nil && (full || len(c.Lookups)+len(c.Unlookups) > 0) {
		// Before the packets that are for these sockets go to the host.
		n, err := l.Sync(s.tables.Lookups())
		s.writes += n
		errs = append(errs, err)
	}
	if g := to.gateway; g != nil && full {
		errs = append(errs, g.SyncServices(s.tables.FrontEnds()), g.SyncServiceCounts(s.tables.Counts()))
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
		s.to = to
	}
	return err
}

// sockError is of the tables of the host's sockets, which the node can do without.
type sockError struct{ error }

func (e sockError) Unwrap() error { return e.error }

func (s *serving) writeSockets(sock *bpf.Sock, changes []bpf.SockService, full bool) error {
	err := sock.SyncAddrs(s.node.Own)
	var n int
	var updateErr error
	if full {
		n, updateErr = sock.SyncServices(s.tables.Sockets())
	} else if len(changes) > 0 {
		n, updateErr = sock.UpdateServices(changes)
	}
	s.writes += n
	for _, a := range sock.GoneUDP() { // also what left while no agent ran
		if !s.tables.Answers(a) {
			s.gone = append(s.gone, a)
		}
	}
	return errors.Join(err, updateErr)
}

// takeGone returns the UDP endpoints that have left, once: sockets that are
// connected to them are to be destroyed.
func (s *serving) takeGone() []netip.AddrPort {
	out := s.gone
	s.gone = nil
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.DeleteFunc(slices.Compact(out), s.tables.Answers) // it may be back
}

// endGone destroys the sockets that are connected to endpoints which have left.
// What did not work is tried again the next time, unless the kernel cannot:
// then the error wraps link.ErrNoSocketDestroy.
func (s *serving) endGone() error {
	gone := s.takeGone()
	_, err := link.DestroyUDP(gone)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.gone = gone
	}
	return err
}

// vips returns the addresses of kind bpf.AddrVIP, sorted.
func (s *serving) vips() []netip.Addr { return s.tables.VIPs() }

// frontEnds returns the whole table of the gateway, for a backend that has no
// maps.
func (s *serving) frontEnds() map[bpf.ServiceKey]bpf.ServiceOwner { return s.tables.FrontEnds() }

// redirects returns, in local gateway mode, to whom the host's nftables send
// what arrives at a front end: each to one of several.
func (s *serving) redirects() map[bpf.ServiceKey]service.Redirect { return s.tables.Redirects() }
