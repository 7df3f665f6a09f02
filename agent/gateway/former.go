package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	maxFormer  = 64                     // hosts with temporary IPv6 addresses get new ones every day
	firstWait  = 250 * time.Millisecond // between the first two flushes; doubles with each flush
	maxFlushes = 12                     // per address, the last one about eight minutes after the first
)

// formerAddresses holds addresses that the host no longer has, and deletes ("flushes") the
// connections that conntrack still translates to them.
//
// conntrack translates a connection to the address that the node had when it began, for as long as
// packets arrive. After a flush, later packets get a new translation. OVN uses the old address
// until the controller has learned the new one. The agent cannot observe that moment, so it flushes
// repeatedly, each time after twice the wait.
//
// Packets from OVN with a former address are dropped meanwhile: replies would go to the new owner
// of the address.
//
// Its methods are safe for concurrent use.
type formerAddresses struct {
	ovsRunDir string
	log       *slog.Logger
	wake      loop.Signal // triggers the gateway's loop
	added     loop.Signal // triggers run

	mu    sync.Mutex         // guards addrs
	addrs map[netip.Addr]int // number of flushes per address
}

func newFormer(ovsRunDir string, wake loop.Signal, log *slog.Logger) *formerAddresses {
	return &formerAddresses{
		ovsRunDir: ovsRunDir,
		log:       log,
		wake:      wake,
		added:     loop.NewSignal(),
		addrs:     map[netip.Addr]int{},
	}
}

// add records removed addresses.
func (f *formerAddresses) add(addrs []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, a := range addrs {
		if _, known := f.addrs[a]; known {
			continue
		}

		if len(f.addrs) >= maxFormer {
			delete(f.addrs, mostFlushed(f.addrs))
		}

		f.addrs[a] = 0
		f.added.Trigger()
		f.wake.Trigger()
	}
}

// mostFlushed returns an address with the most flushes, which is one of the oldest.
func mostFlushed(former map[netip.Addr]int) (found netip.Addr) {
	for a, flushes := range former {
		if !found.IsValid() || flushes > former[found] {
			found = a
		}
	}

	return found
}

// list returns the addresses in undefined order.
func (f *formerAddresses) list() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Collect(maps.Keys(f.addrs))
}

// update records those addresses of the previous node state that neither the host nor the node has
// any more. It forgets former addresses that are back.
func (f *formerAddresses) update(before, now Node, h Host) {
	present := append(hostAddrs(h), addrsOf(now.Gone)...) // the gateway keeps the latter for a while
	isPresent := func(a netip.Addr) bool { return slices.Contains(present, a) }

	f.mu.Lock()
	maps.DeleteFunc(f.addrs, func(a netip.Addr, _ int) bool { return isPresent(a) })
	f.mu.Unlock()

	f.add(slices.DeleteFunc(addrsOf(before.HostCIDRs), isPresent))
}

// run flushes former addresses until ctx ends: a new one at once, and the others when a wait is
// over.
func (f *formerAddresses) run(ctx context.Context) error {
	for {
		wait := f.flush(ctx)

		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-f.added:
		}
	}
}

// flush deletes the connections of every former address once, except of those with maxFlushes. It
// returns the wait before the next flush, or 0 if none is due.
func (f *formerAddresses) flush(ctx context.Context) (wait time.Duration) {
	f.mu.Lock()
	due := maps.Clone(f.addrs)
	f.mu.Unlock()
	maps.DeleteFunc(due, func(_ netip.Addr, flushes int) bool { return flushes >= maxFlushes })

	for a, flushes := range due {
		err := ovs.ForgetAddress(ctx, f.ovsRunDir, a)

		isFirst := flushes == 0 // only this one is logged
		if isFirst && err != nil {
			f.log.Warn("cannot delete connections of a removed address", "address", a, "error", err)
		} else if isFirst {
			f.log.Info("connections of a removed address deleted", "address", a)
		}

		if next := firstWait << flushes; wait == 0 || next < wait {
			wait = next
		}

		f.mu.Lock()
		if _, isFormer := f.addrs[a]; isFormer { // unless the host has it again
			f.addrs[a] = flushes + 1
		}
		f.mu.Unlock()
	}

	return wait
}
