package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Times and limits of looks (see untranslated).
const (
	firstLook   = 250 * time.Millisecond // usually, the datapath has the flows by then
	lookPause   = time.Second            // the least time between two dumps
	restPerLook = 4                      // the least ratio of pause to look, because a look keeps a CPU busy
	maxLooks    = 6                      // the last one 16 s after the flows: a busy Open vSwitch is slow
	steadyLooks = 3                      // with lookPause between them; then each pause is twice as long
	followTries = 10                     // failures, one a second, that are no fault: Open vSwitch starts
	mostPerLook = 10_000                 // deleted connections; each costs ovs-vswitchd a request
)

// untranslated deletes connections that are older than their frontend.
//
// A client that sends to a frontend before OVN serves it has a connection without a translation.
// conntrack keeps it for as long as the client sends from the same port, so the client would never
// reach the Service. The agent deletes these connections when OVN's flows for the frontend are in
// Open vSwitch. The flows of the datapath follow them up to a second later. Until then, a packet
// may open the connection again, so the agent looks more than once. A look dumps conntrack, and
// deletes such connections of all frontends that it knows. After maxLooks, a frontend is forgotten.
//
// Its methods are safe for concurrent use.
type untranslated struct {
	log       *slog.Logger
	record    *recorder
	ovsRunDir string
	read      func(context.Context) *dump
	added     loop.Signal // something was added; triggers runLooks

	mu        sync.Mutex                          // guards the fields below
	frontends map[ovs.VIP]deletionProgress        // those that need further looks
	redirects map[netip.AddrPort][]netip.AddrPort // see redirected; emptied by the next look
	watchErr  error                               // why OVN's flows are not followed, or nil
	lookErr   error                               // of the last look, or nil
}

// deletionProgress is the progress for one frontend.
type deletionProgress struct {
	looks int       // so far
	next  time.Time // when the next look is due
}

func newUntranslated(p parts) *untranslated {
	return &untranslated{
		log:       p.log,
		record:    p.record,
		ovsRunDir: p.s.OVSRunDir,
		read:      p.tracker.read,
		added:     loop.NewSignal(),
		frontends: map[ovs.VIP]deletionProgress{},
		redirects: map[netip.AddrPort][]netip.AddrPort{},
	}
}

// pauseAfter returns the time between a frontend's look and its next one. look counts from 1.
func pauseAfter(look int) time.Duration { return lookPause << max(0, look-steadyLooks+1) }

// add records a new frontend.
func (u *untranslated) add(vip ovs.VIP) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.frontends[vip] = deletionProgress{next: time.Now().Add(firstLook)}
	u.added.Trigger()
}

// redirected records UDP frontends at which the host's nftables redirect to other destinations than
// before. The host's connections to others end at the next look.
func (u *untranslated) redirected(to map[netip.AddrPort][]netip.AddrPort) {
	if len(to) == 0 {
		return
	}

	u.mu.Lock()
	defer u.mu.Unlock()

	maps.Copy(u.redirects, to)
	u.added.Trigger()
}

// run follows OVN's frontends until ctx ends, those of the agent's start included: one may have
// appeared while no agent ran.
func (u *untranslated) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ovs.WatchVIPs(ctx, u.ovsRunDir, u.add, u.watchReporter()) })
	group.Go(func() error { return u.runLooks(ctx) })

	return group.Wait()
}

// watchReporter returns a function that records whether OVN's flows are followed. WatchVIPs calls
// it each second while they are not.
func (u *untranslated) watchReporter() func(error) {
	failures := 0

	return func(err error) {
		if err == nil {
			failures = 0
		} else {
			failures++
		}

		if err == nil || failures > followTries {
			u.setFault(func() { u.watchErr = err })
		}
	}
}

// setFault changes one of the errors and records both.
func (u *untranslated) setFault(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()

	change()
	u.record.setFault(partUntranslated, errors.Join(u.watchErr, u.lookErr))
}

// runLooks looks for connections until ctx ends, at most once in lookPause.
func (u *untranslated) runLooks(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if next := u.nextLook(); !next.IsZero() {
			again = time.After(time.Until(next))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-u.added:
			continue
		case <-again:
		}

		began := time.Now()

		u.look(ctx)

		if !loop.Pause(ctx, max(lookPause, restPerLook*time.Since(began))) {
			return nil
		}
	}
}

// nextLook returns when the next look is due, or the zero time if none is.
func (u *untranslated) nextLook() (next time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()

	if len(u.redirects) > 0 {
		return time.Now()
	}

	for _, progress := range u.frontends {
		if next.IsZero() || progress.next.Before(next) {
			next = progress.next
		}
	}

	return next
}

// look deletes the connections that exist now. After an error, everything stays due.
func (u *untranslated) look(ctx context.Context) {
	u.mu.Lock()
	frontends, redirects := maps.Clone(u.frontends), u.redirects
	u.redirects = map[netip.AddrPort][]netip.AddrPort{}
	u.mu.Unlock()

	hostErr := u.deleteRedirected(redirects)

	var ovnErr error

	if len(frontends) > 0 {
		var done bool
		if done, ovnErr = u.deleteUntranslated(ctx, frontends); done {
			u.countLook(frontends)
		}
	}

	if ctx.Err() == nil { // at the end of the agent, errors mean nothing
		u.setFault(func() { u.lookErr = cmp.Or(hostErr, ovnErr) })
	}
}

// deleteUntranslated deletes the datapath's connections to the frontends, and reports whether it
// has deleted all that it found.
func (u *untranslated) deleteUntranslated(
	ctx context.Context,
	frontends map[ovs.VIP]deletionProgress,
) (done bool, err error) {
	d := u.read(ctx)
	if d.err != nil {
		return false, d.err
	}

	found := untranslatedTo(d.list, frontends)

	n, err := ovs.DeleteConnections(ctx, u.ovsRunDir, found[:min(len(found), mostPerLook)])
	if n > 0 {
		u.log.Info("deleted connections that are older than their Service", "count", n)
	}

	return err == nil && len(found) <= mostPerLook, err
}

// deleteRedirected deletes the host's own connections to frontends with changed redirects. After an
// error it remembers the redirects for the next look.
func (u *untranslated) deleteRedirected(redirects map[netip.AddrPort][]netip.AddrPort) error {
	if len(redirects) == 0 {
		return nil
	}

	n, err := link.ForgetUDP(redirects)
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()

		maps.Copy(redirects, u.redirects) // those that were added meanwhile take precedence
		u.redirects = redirects

		return err
	}

	if n > 0 {
		u.log.Info("forgot UDP connections to changed endpoints", "count", n)
	}

	return nil
}

// countLook counts a look for the frontends that were due, of those before the look. A frontend
// that was added again meanwhile starts anew.
func (u *untranslated) countLook(frontends map[ovs.VIP]deletionProgress) {
	now := time.Now()

	u.mu.Lock()
	defer u.mu.Unlock()

	for vip, progress := range frontends {
		wasAddedAgain := u.frontends[vip] != progress
		if wasAddedAgain || progress.next.After(now) {
			continue
		}

		progress.looks++

		if progress.looks >= maxLooks {
			delete(u.frontends, vip)
			continue
		}

		progress.next = now.Add(pauseAfter(progress.looks))
		u.frontends[vip] = progress
	}
}

// untranslatedTo returns the connections to these frontends that have no translation and cannot
// work without it: UDP, and TCP without an answer. If a server has answered, the connection may
// continue.
func untranslatedTo(
	list []ovs.TrackedConnection,
	frontends map[ovs.VIP]deletionProgress,
) []ovs.TrackedConnection {
	return slices.DeleteFunc(slices.Clone(list), func(t ovs.TrackedConnection) bool {
		to := t.Original.Dst
		_, isToFrontend := frontends[ovs.VIP{Proto: t.Proto, At: to}]
		isTranslated := t.Reply.Src != to
		mayContinue := t.Proto != unix.IPPROTO_UDP && !t.Opening

		return !isToFrontend || isTranslated || mayContinue
	})
}
