package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// tableWriter is the state of the kernel's tables: how far they agree with the desired ones, and
// the programs that use them. The methods of Services in this file own it.
type tableWriter struct {
	sock     *bpf.Sock   // programs for the host's own sockets; nil: not loaded
	lookup   *bpf.Lookup // finds listeners behind externalTrafficPolicy Local; nil: not loaded
	openedAt time.Time   // of the last attempt to load them

	upToDate  bool // the last plans are completely written, so updateAlone may write the next changes
	synced    bool // the tables equal the desired ones as of the last Changes; false: write everything
	wroteOnce bool // the first write is over
	// writes is the number of entries written or deleted since the start. Full syncs of the
	// gateway's table do not count.
	writes int

	// For destroySockets: UDP endpoints that were removed, and frontends that are younger than some
	// sockets.
	goneEndpoints []netip.AddrPort
	newFrontends  []verdict.ServiceKey
}

// Arguments of openHost.
const (
	socketsOnly = false
	withLookup  = true
)

// openHost loads missing programs for the host's sockets, at most once per resync. With the
// argument withLookup it also loads the lookup of listeners behind externalTrafficPolicy Local.
// Only the programs at the uplink use that one.
func (s *Services) openHost(needsLookup bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	complete := s.sock != nil && (s.lookup != nil || !needsLookup)
	if s.settings.NoEBPF != "" || complete || time.Since(s.openedAt) < resync {
		return
	}

	s.openedAt = time.Now()
	set := s.settings

	var err error

	if s.sock == nil {
		options := bpf.CgroupOptions{PinDir: set.PinDir, CgroupPath: set.CgroupPath, Sizes: set.sizes, Log: s.log}
		if s.sock, err = bpf.OpenSock(options); err == nil {
			s.synced = false
		}

		s.record.setFault(partSockets, err)
	}

	if s.lookup == nil && needsLookup {
		options := bpf.LookupOptions{PinDir: set.PinDir, Sizes: set.sizes, Log: s.log}
		if s.lookup, err = bpf.OpenLookup(options); err == nil {
			s.synced = false
		}

		s.record.setFault(partLookup, err)
	}
}

// write brings the kernel's tables in line with the desired ones. programs are those at the uplink,
// or nil.
func (s *Services) write(programs *bpf.Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.pacer.startWork()()

	if s.programs.Swap(programs) != programs {
		s.synced = false
	}

	return s.writeTables()
}

// writeTables writes the changes, destroys sockets that would miss them, and attaches the programs
// for the host's sockets. It records a fault of these programs, but does not return it. If their
// tables fail, it closes the programs and writes the other tables again. The caller must hold mu.
func (s *Services) writeTables() (err error) {
	defer func() {
		if s.planned { // a failure of the sockets' tables has been recorded as degraded by now
			s.hostServed.Store(true)
		}

		s.upToDate = err == nil && s.planned
	}()

	err = s.writeChanges()
	s.recordUnwritten()
	s.record.setFault(partDestroy, s.destroySockets())

	if s.sock == nil {
		return err
	}

	// Continue without the programs for the host's sockets. openHost loads them again later.
	if tableErr := (sockError{}); errors.As(err, &tableErr) {
		s.record.setFault(partSockets, tableErr)
		s.sock.Close()
		s.sock = nil

		return s.writeChanges()
	}

	if !s.planned {
		return err // programs that an earlier agent attached continue with their tables
	}

	attached, attachErr := s.sock.Attached()
	if attachErr == nil && !attached {
		attachErr = s.sock.Attach()
	}

	s.record.setFault(partSockets, attachErr)

	return err
}

// writeChanges writes the changes to the kernel's tables. On the first call, after an error, and
// for new programs, it writes everything. The tables are independent: an error in one does not stop
// the others. A full table is not an error: it gets what it has room for, see
// bpf.Gateway.Unwritten.
func (s *Services) writeChanges() error {
	if !s.planned {
		return nil
	}

	c := s.tables.Changes()

	s.goneEndpoints = append(s.goneEndpoints, c.Gone...)
	if s.wroteOnce { // before that, sockets may have reached their frontends without programs
		s.newFrontends = append(s.newFrontends, c.New...)
	}

	s.wroteOnce = true
	all := !s.synced
	s.synced = false // unknown until the write succeeds

	// The lookups come before the gateway's table, which sends packets for these listeners to the
	// host.
	errs := []error{s.writeLookups(c, all), s.writeGateway(c, all)}

	s.setFlowCounts(c, all)

	if s.sock != nil {
		if err := s.writeSockets(c.Sockets, all); err != nil {
			errs = append(errs, sockError{err})
		}
	}

	err := errors.Join(errs...)
	s.synced = err == nil

	return err
}

// writeLookups writes the table of listeners behind externalTrafficPolicy Local. It is small, so it
// is always written as a whole.
func (s *Services) writeLookups(c service.Changes, all bool) error {
	if s.lookup == nil || !all && len(c.Lookups)+len(c.Unlookups) == 0 {
		return nil
	}

	n, err := s.lookup.Sync(s.tables.Lookups())
	s.writes += n

	return err
}

// writeGateway writes the table of the programs at the uplink, and the ports for which they count.
func (s *Services) writeGateway(c service.Changes, all bool) error {
	programs := s.programs.Load()
	switch {
	case programs == nil:
		return nil
	case all:
		return errors.Join(programs.SyncServices(s.tables.Frontends()), programs.SyncServiceCounts(s.tables.Counts()))
	}

	n, err := programs.UpdateServices(c.Set, c.Unset)
	s.writes += n

	return errors.Join(err, programs.CountServices(c.Counts))
}

// setFlowCounts sets the ports for which flows count, with the OpenFlow backend.
func (s *Services) setFlowCounts(c service.Changes, all bool) {
	switch {
	case s.flowCounts == nil:
	case all:
		s.flowCounts.setFrontends(s.tables.Counts())
	default:
		s.flowCounts.updateFrontends(c.Counts)
	}
}

// sockError is an error of the host's socket tables. The node works without them.
type sockError struct{ error }

func (e sockError) Unwrap() error { return e.error }

// writeSockets writes the tables of the programs for the host's sockets.
func (s *Services) writeSockets(changes []bpf.SockService, all bool) error {
	addrsErr := s.sock.SyncAddrs(s.node.Own)

	var (
		n           int
		servicesErr error
	)
	if all {
		n, servicesErr = s.sock.SyncServices(s.tables.Sockets())
	} else if len(changes) > 0 {
		n, servicesErr = s.sock.UpdateServices(changes)
	}

	s.writes += n

	for _, a := range s.sock.GoneUDP() { // includes endpoints removed while no agent ran
		if !s.tables.Answers(a) {
			s.goneEndpoints = append(s.goneEndpoints, a)
		}
	}

	return errors.Join(addrsErr, servicesErr)
}

// destroySockets destroys UDP sockets of the host that would otherwise keep an old destination:
//
//   - sockets that were connected to a frontend, and translated to an endpoint that is now removed
//   - sockets that were connected to an address and port before these became a frontend
//
// Without programs for sockets, no socket is translated, so it destroys none. The next call retries
// failures. If the kernel cannot destroy sockets, the error wraps link.ErrNoSocketDestroy.
func (s *Services) destroySockets() error {
	gone := s.takeGone()
	if s.sock == nil {
		s.newFrontends = nil
		return nil
	}

	_, err := link.DestroyUDP(gone, s.sock.Translated)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.goneEndpoints = gone
	}

	if err != nil || !s.synced {
		return err // a client that connects to a frontend again might not be translated yet
	}

	fresh := s.newFrontends
	s.newFrontends = nil

	frontends := s.tables.SocketFrontends(fresh, s.node.Own)

	_, err = link.DestroyUntranslatedUDP(frontends, s.node.Own, s.sock.Translated)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.newFrontends = fresh
	}

	return err
}

// takeGone returns removed UDP endpoints and clears the list.
func (s *Services) takeGone() []netip.AddrPort {
	gone := s.goneEndpoints
	s.goneEndpoints = nil

	slices.SortFunc(gone, netip.AddrPort.Compare)

	return slices.DeleteFunc(slices.Compact(gone), s.tables.Answers) // the endpoint may be back
}

// recordUnwritten records the entries that the tables have no room for.
func (s *Services) recordUnwritten() {
	if programs := s.programs.Load(); programs != nil {
		s.record.setUnwritten(programs.Unwritten())
	}

	if s.sock != nil {
		s.record.setUnwritten(s.sock.Unwritten())
	}

	if s.lookup != nil {
		s.record.setUnwritten(s.lookup.Unwritten())
	}
}

// close closes the programs, and leaves them attached. Nothing is written afterwards.
func (s *Services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.sock != nil {
		s.sock.Close()
	}

	if s.lookup != nil {
		s.lookup.Close()
	}

	s.sock, s.lookup, s.upToDate = nil, nil, false
}
