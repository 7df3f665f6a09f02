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

// conntrack translates a connection to the address that the node had when it began, for as long as
// packets arrive. The agent deletes connections of a removed address, so that later packets get a
// new translation. OVN uses the old address until the controller has learned the new one. The agent
// cannot observe that moment, so it flushes repeatedly, each time after twice the wait.
//
// Until then, packets from OVN with a removed address are dropped: replies would go to the new
// owner of the address.
const (
	maxFormer  = 64 // hosts with temporary IPv6 addresses get new ones every day
	firstFlush = 250 * time.Millisecond
	flushes    = 12 // the last one about eight minutes after the first
)

// formerAddresses holds addresses that the host no longer has. Its methods are safe for concurrent
// use.
type formerAddresses struct {
	ovsRunDir string
	log       *slog.Logger
	wake      loop.Signal // triggers the gateway's loop
	own       loop.Signal // an address was added

	mu    sync.Mutex         // guards addrs
	addrs map[netip.Addr]int // number of flushes per address
}

func newFormer(ovsRunDir string, wake loop.Signal, log *slog.Logger) *formerAddresses {
	return &formerAddresses{
		ovsRunDir: ovsRunDir,
		log:       log,
		wake:      wake,
		own:       loop.NewSignal(),
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
			delete(f.addrs, oldest(f.addrs))
		}

		f.addrs[a] = 0
		f.own.Trigger()
		f.wake.Trigger()
	}
}

// oldest returns the address with the most flushes.
func oldest(former map[netip.Addr]int) (found netip.Addr) {
	for a, times := range former {
		if !found.IsValid() || times > former[found] {
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

// compare records those addresses of the previous node state that neither the host nor the node has
// any more.
func (f *formerAddresses) compare(was, is Node, h Host) {
	now := append(hostAddrs(h), addrsOf(is.Gone)...)

	f.mu.Lock()
	maps.DeleteFunc(f.addrs, func(a netip.Addr, _ int) bool { return slices.Contains(now, a) })
	f.mu.Unlock()
	f.add(slices.DeleteFunc(addrsOf(was.HostCIDRs), func(a netip.Addr) bool { return slices.Contains(now, a) }))
}

// run flushes the connection tracker until ctx ends.
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
		case <-f.own:
		}
	}
}

// flush deletes the connections of every former address once. It returns the wait before the next
// flush, or 0 if none is due.
func (f *formerAddresses) flush(ctx context.Context) (wait time.Duration) {
	f.mu.Lock()
	due := maps.Clone(f.addrs)
	f.mu.Unlock()
	maps.DeleteFunc(due, func(_ netip.Addr, times int) bool { return times >= flushes })

	for a, times := range due {
		err := ovs.ForgetAddress(ctx, f.ovsRunDir, a)
		if err != nil && times == 0 {
			f.log.Warn("cannot delete connections of a removed address", "address", a, "error", err)
		}

		if err == nil && times == 0 {
			f.log.Info("connections of a removed address deleted", "address", a)
		}

		if next := firstFlush << times; wait == 0 || next < wait {
			wait = next
		}

		f.mu.Lock()
		if _, still := f.addrs[a]; still {
			f.addrs[a] = times + 1
		}
		f.mu.Unlock()
	}

	return wait
}
