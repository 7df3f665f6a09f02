package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// openHost loads missing programs for the host's sockets, at most once per resync. behind includes
// the lookup of listeners behind externalTrafficPolicy Local. Only the programs at the uplink use
// that one, and its tables exist already.
func (s *Services) openHost(behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.settings.NoEBPF != "" || s.sock != nil && (s.lookup != nil || !behind) || time.Since(s.openedAt) < resync {
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

		s.record.degraded(partSockets, err)
	}

	if s.lookup == nil && behind {
		options := bpf.LookupOptions{PinDir: set.PinDir, Sizes: set.sizes, Log: s.log}
		if s.lookup, err = bpf.OpenLookup(options); err == nil {
			s.synced = false
		}

		s.record.degraded(partLookup, err)
	}
}

// write updates the tables to the plans. programs are those at the uplink, or nil.
func (s *Services) write(programs *bpf.Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.work()()

	if s.programs.Swap(programs) != programs {
		s.synced = false
	}

	return s.writeTables()
}

// writeTables writes the changes. The gateway's tables and those of the host's sockets are
// independent: an error in one does not stop the other.
func (s *Services) writeTables() (err error) {
	defer func() {
		s.settled.Store(s.settled.Load() || s.known) // a failure has been recorded as degraded by now
		s.current = err == nil && s.known
	}()

	err = s.writeChanges()
	s.recordUnwritten()
	s.record.degraded(partDestroy, s.destroy())

	if s.sock == nil {
		return err
	}

	if theirs := (sockError{}); errors.As(err, &theirs) {
		s.record.degraded(partSockets, theirs)
		s.sock.Close()
		s.sock = nil

		return s.writeChanges()
	}

	if !s.known {
		return err // attached programs continue with their tables
	}

	attached, sockErr := s.sock.Attached()
	if sockErr == nil && !attached {
		sockErr = s.sock.Attach()
	}

	s.record.degraded(partSockets, sockErr)

	return err
}

// writeChanges writes the changes to the kernel's tables. On the first call, after an error, and for
// new programs, it writes everything. A full table is not an error: it gets what it has room for, see
// bpf.Gateway.Unwritten.
func (s *Services) writeChanges() error {
	if !s.known {
		return nil
	}

	c := s.tables.Changes()

	s.goneEndpoints = append(s.goneEndpoints, c.Gone...)
	if s.wroteOnce { // before that, sockets may have reached their frontends without programs
		s.newFrontends = append(s.newFrontends, c.New...)
	}

	s.wroteOnce = true
	full := !s.synced
	s.synced = false // unknown until the write succeeds

	var errs []error

	if l := s.lookup; l != nil && (full || len(c.Lookups)+len(c.Unlookups) > 0) {
		// Socket lookups come before the gateway's table: it sends packets for these sockets to the
		// host.
		n, err := l.Sync(s.tables.Lookups())
		s.writes += n

		errs = append(errs, err)
	}

	if g := s.programs.Load(); g != nil && full {
		errs = append(errs, g.SyncServices(s.tables.Frontends()), g.SyncServiceCounts(s.tables.Counts()))
	} else if g != nil {
		n, err := g.UpdateServices(c.Set, c.Unset)
		s.writes += n

		errs = append(errs, err, g.CountServices(c.Counts))
	}

	if f := s.flows; f != nil && full {
		f.set(s.tables.Counts(), true)
	} else if f != nil {
		f.set(c.Counts, false)
	}

	if s.sock != nil {
		if err := s.writeSockets(c.Sockets, full); err != nil {
			errs = append(errs, sockError{err})
		}
	}

	err := errors.Join(errs...)
	s.synced = err == nil

	return err
}

// sockError is an error of the host's socket tables. The node works without them.
type sockError struct{ error }

func (e sockError) Unwrap() error { return e.error }

func (s *Services) writeSockets(changes []bpf.SockService, full bool) error {
	err := s.sock.SyncAddrs(s.node.Own)

	var (
		n         int
		updateErr error
	)
	if full {
		n, updateErr = s.sock.SyncServices(s.tables.Sockets())
	} else if len(changes) > 0 {
		n, updateErr = s.sock.UpdateServices(changes)
	}

	s.writes += n
	for _, a := range s.sock.GoneUDP() { // includes endpoints removed while no agent ran
		if !s.tables.Answers(a) {
			s.goneEndpoints = append(s.goneEndpoints, a)
		}
	}

	return errors.Join(err, updateErr)
}

// takeGone returns removed UDP endpoints and clears the list.
func (s *Services) takeGone() []netip.AddrPort {
	out := s.goneEndpoints
	s.goneEndpoints = nil

	slices.SortFunc(out, netip.AddrPort.Compare)

	return slices.DeleteFunc(slices.Compact(out), s.tables.Answers) // the endpoint may be back
}

// destroy destroys UDP sockets of the host: those that a frontend connected to removed endpoints,
// and those that connected to a frontend before it existed. Without programs for sockets
// there are none. It retries failures on the next call. If the kernel does not support it, the
// error wraps link.ErrNoSocketDestroy.
func (s *Services) destroy() error {
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
		return err // without programs, a client that connects again would not be translated
	}

	older := s.newFrontends
	s.newFrontends = nil

	frontends := s.tables.SocketFrontends(older, s.node.Own)

	_, err = link.DestroyUntranslatedUDP(frontends, s.node.Own, s.sock.Translated)
	if err != nil && !errors.Is(err, link.ErrNoSocketDestroy) {
		s.newFrontends = older
	}

	return err
}

// recordUnwritten records the entries that the tables have no room for.
func (s *Services) recordUnwritten() {
	if programs := s.programs.Load(); programs != nil {
		s.record.unwritten(programs.Unwritten())
	}

	if s.sock != nil {
		s.record.unwritten(s.sock.Unwritten())
	}

	if s.lookup != nil {
		s.record.unwritten(s.lookup.Unwritten())
	}
}

// close leaves attachments in place. Nothing is written afterwards.
func (s *Services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.sock != nil {
		s.sock.Close()
	}

	if s.lookup != nil {
		s.lookup.Close()
	}

	s.sock, s.lookup, s.current = nil, nil, false
}
