package gateway

import (
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

// A client that sends to a frontend before OVN serves it has a connection without a translation.
// conntrack keeps it for as long as the client sends from the same port, so the client would never
// reach the Service. The agent deletes these connections when OVN's flows for the frontend are in
// Open vSwitch. The flows of the datapath follow them up to a second later. Until then, a packet
// may open the connection again, so the agent looks more than once.
const (
	firstLook   = 250 * time.Millisecond // usually, the datapath has the flows by then
	lookPause   = time.Second            // the least time between two dumps
	restPerLook = 4                      // the least ratio of pause to look, because a look keeps a CPU busy
	looks       = 6                      // the last one 16 s after the flows: a busy Open vSwitch is slow
	steadyLooks = 3                      // with lookPause between them; then each pause is twice as long
	followTries = 10                     // failures, one a second, that are no fault: Open vSwitch starts
	mostPerLook = 10_000                 // deleted connections; each costs ovs-vswitchd a request
)

// untranslated deletes connections that are older than their frontend. Its methods are safe for
// concurrent use.
type untranslated struct {
	log       *slog.Logger
	record    *recorder
	ovsRunDir string
	read      func(context.Context) *dump
	own       loop.Signal // something was added

	mu        sync.Mutex // guards the fields below
	frontends map[ovs.VIP]deletionProgress
	redirects map[netip.AddrPort][]netip.AddrPort // see redirected
	// unfollowed is why OVN's flows are not followed, or nil. failedLook is the error of the last
	// look.
	unfollowed, failedLook error
}

// deletionProgress is the progress for one frontend.
type deletionProgress struct {
	looks int
	next  time.Time
}

func newUntranslated(p parts) *untranslated {
	return &untranslated{
		log:       p.log,
		record:    p.record,
		ovsRunDir: p.s.OVSRunDir,
		read:      p.tracker.read,
		own:       loop.NewSignal(),
		frontends: map[ovs.VIP]deletionProgress{},
		redirects: map[netip.AddrPort][]netip.AddrPort{},
	}
}

// pauseAfter returns the time between a look and the next one.
func pauseAfter(look int) time.Duration { return lookPause << max(0, look-steadyLooks+1) }

// add records a new frontend.
func (u *untranslated) add(vip ovs.VIP) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.frontends[vip] = deletionProgress{next: time.Now().Add(firstLook)}
	u.own.Trigger()
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
	u.own.Trigger()
}

// run follows OVN's frontends until ctx ends, those of the agent's start included: one may have
// appeared while no agent ran.
func (u *untranslated) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ovs.WatchVIPs(ctx, u.ovsRunDir, u.add, u.failed()) })
	group.Go(func() error { return u.lookAgain(ctx) })

	return group.Wait()
}

// failed returns a function that records whether OVN's flows are followed. It is called each second
// while they are not.
func (u *untranslated) failed() func(error) {
	times := 0

	return func(err error) {
		if times++; err == nil {
			times = 0
		}

		if err == nil || times > followTries {
			u.report(func() { u.unfollowed = err })
		}
	}
}

// report changes one of the errors and records both.
func (u *untranslated) report(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()

	change()
	u.record.degraded(partUntranslated, errors.Join(u.unfollowed, u.failedLook))
}

// lookAgain looks for connections until ctx ends, at most once in lookPause.
func (u *untranslated) lookAgain(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if next := u.next(); !next.IsZero() {
			again = time.After(time.Until(next))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-u.own:
			continue
		case <-again:
		}

		began := time.Now()

		u.deleteExisting(ctx)

		if !loop.Pause(ctx, max(lookPause, restPerLook*time.Since(began))) {
			return nil
		}
	}
}

// next returns when the next look is due, or the zero time if none is.
func (u *untranslated) next() (next time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()

	if len(u.redirects) > 0 {
		return time.Now()
	}

	for _, l := range u.frontends {
		if next.IsZero() || l.next.Before(next) {
			next = l.next
		}
	}

	return next
}

// deleteExisting deletes the connections that exist now. After an error, everything stays due.
func (u *untranslated) deleteExisting(ctx context.Context) {
	u.mu.Lock()
	frontends, redirects := maps.Clone(u.frontends), u.redirects
	u.redirects = map[netip.AddrPort][]netip.AddrPort{}
	u.mu.Unlock()

	err := u.forgetRedirected(redirects)
	if len(frontends) > 0 {
		done, errOVN := u.forget(ctx, frontends)
		if done {
			u.note(frontends)
		}

		if err == nil {
			err = errOVN
		}
	}

	if ctx.Err() == nil {
		u.report(func() { u.failedLook = err })
	}
}

// forget deletes the datapath's connections, and reports whether none is left.
func (u *untranslated) forget(
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

// forgetRedirected deletes the host's own connections.
func (u *untranslated) forgetRedirected(redirects map[netip.AddrPort][]netip.AddrPort) error {
	if len(redirects) == 0 {
		return nil
	}

	n, err := link.ForgetUDP(redirects)
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()

		maps.Copy(redirects, u.redirects) // newer
		u.redirects = redirects

		return err
	}

	if n > 0 {
		u.log.Info("forgot UDP connections to changed endpoints", "count", n)
	}

	return nil
}

// note counts a look for the frontends that were due. Frontends that were added meanwhile stay.
func (u *untranslated) note(frontends map[ovs.VIP]deletionProgress) {
	now := time.Now()

	u.mu.Lock()
	defer u.mu.Unlock()

	for k, l := range frontends {
		if u.frontends[k] != l || l.next.After(now) {
			continue
		}

		l.looks++

		l.next = now.Add(pauseAfter(l.looks))
		if u.frontends[k] = l; l.looks >= looks {
			delete(u.frontends, k)
		}
	}
}

// untranslatedTo returns the connections to these frontends that no translation applies to: UDP,
// and TCP without an answer.
func untranslatedTo(
	list []ovs.TrackedConnection,
	frontends map[ovs.VIP]deletionProgress,
) []ovs.TrackedConnection {
	return slices.DeleteFunc(slices.Clone(list), func(t ovs.TrackedConnection) bool {
		to := t.Original.Dst
		_, is := frontends[ovs.VIP{Proto: t.Proto, At: to}]

		return !is || t.Reply.Src != to || t.Proto != unix.IPPROTO_UDP && !t.Opening
	})
}
