package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// A client that sends to a frontend before the frontend exists has a connection without a
// translation. conntrack keeps it for as long as the client sends from the same port, so the client
// would never reach the Service. The agent deletes these connections of new frontends. A packet that
// arrives before Open vSwitch has the frontend's flows opens the connection again. The agent cannot
// observe that moment, so it looks repeatedly.
const (
	firstLook    = 250 * time.Millisecond // usually, Open vSwitch has the flows by then
	lookPause    = time.Second            // the least time between two dumps
	restPerLook  = 4                      // the pause is at least this much longer than the look, which keeps a CPU busy
	steadyLooks  = 4                      // with lookPause between them; then each pause is twice as long
	looks        = 8                      // the last one 33 s after the frontend
	mostPerLook  = 10_000                 // deleted connections; each costs ovs-vswitchd a request
	beforeAgents = looks - 1              // looks that are left out for frontends from before the agent's start
)

// untranslated deletes connections that are older than their frontend. Its methods are safe for
// concurrent use.
type untranslated struct {
	log       *slog.Logger
	record    *recorder
	ovsRunDir string
	connected func() bool // whether ovs-vswitchd is connected
	read      func(context.Context) *dump
	own       loop.Signal // something was added

	dumps atomic.Uint64

	mu        sync.Mutex // guards the fields below
	frontends map[bpf.ServiceKey]looked
	redirects map[netip.AddrPort][]netip.AddrPort // see redirected
}

// looked is the progress for one frontend.
type looked struct {
	looks int
	next  time.Time
}

func newUntranslated(p parts) *untranslated {
	return &untranslated{
		log: p.log, record: p.record, ovsRunDir: p.s.OVSRunDir, connected: p.tracker.connected, read: p.tracker.read,
		own: loop.NewSignal(), frontends: map[bpf.ServiceKey]looked{}, redirects: map[netip.AddrPort][]netip.AddrPort{},
	}
}

// pauseBefore returns the time between a look and the one before it, or the frontend's appearance.
func pauseBefore(look int) time.Duration {
	if look == 0 {
		return firstLook
	}
	return lookPause << max(0, look-steadyLooks+1)
}

// add records new frontends. Frontends from before the agent's start get one look: OVN serves them
// already, unless they appeared while no agent ran.
func (u *untranslated) add(frontends []bpf.ServiceKey, before bool) {
	if len(frontends) == 0 {
		return
	}
	done := 0
	if before {
		done = beforeAgents
	}
	next := time.Now().Add(firstLook)

	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range frontends {
		if k.Proto == unix.IPPROTO_UDP || k.Proto == unix.IPPROTO_TCP {
			u.frontends[k] = looked{looks: done, next: next}
		}
	}
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

// run looks for connections until ctx ends, at most once in lookPause.
func (u *untranslated) run(ctx context.Context) error {
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
		u.look(ctx)
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

// look deletes the connections that exist now. After an error, everything stays due.
func (u *untranslated) look(ctx context.Context) {
	u.mu.Lock()
	frontends, redirects := maps.Clone(u.frontends), u.redirects
	u.redirects = map[netip.AddrPort][]netip.AddrPort{}
	u.mu.Unlock()

	err := u.forgetRedirected(redirects)
	if len(frontends) > 0 && u.connected() {
		done, errOVN := u.forget(ctx, frontends)
		if done {
			u.note(frontends)
		}
		if err == nil {
			err = errOVN
		}
	}
	if ctx.Err() == nil {
		u.record.degraded(partUntranslated, err)
	}
}

// forget deletes the datapath's connections, and reports whether none is left.
func (u *untranslated) forget(ctx context.Context, frontends map[bpf.ServiceKey]looked) (done bool, err error) {
	u.dumps.Add(1)
	d := u.read(ctx)
	if d.err != nil {
		return false, d.err
	}
	found := untranslatedTo(d.list, frontends)
	n, err := ovs.Forget(ctx, u.ovsRunDir, found[:min(len(found), mostPerLook)])
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
func (u *untranslated) note(frontends map[bpf.ServiceKey]looked) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, l := range frontends {
		if u.frontends[k] != l || l.next.After(now) {
			continue
		}
		l.looks++
		l.next = now.Add(pauseBefore(l.looks))
		if u.frontends[k] = l; l.looks >= looks {
			delete(u.frontends, k)
		}
	}
}

// untranslatedTo returns the connections to these frontends that no translation applies to: UDP, and
// TCP without an answer.
func untranslatedTo(list []ovs.Tracked, frontends map[bpf.ServiceKey]looked) []ovs.Tracked {
	return slices.DeleteFunc(slices.Clone(list), func(t ovs.Tracked) bool {
		to := t.Original.Dst
		_, is := frontends[bpf.ServiceKey{Addr: to.Addr(), Proto: t.Proto, Port: to.Port()}]
		return !is || t.Reply.Src != to || t.Proto != unix.IPPROTO_UDP && !t.Opening
	})
}
