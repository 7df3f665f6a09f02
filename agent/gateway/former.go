package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/loop"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// A connection is translated to the address that the node had when it began, for as long as
// packets come. Connections of an address that is gone are forgotten, so that later packets are
// translated anew. OVN uses the old address until the controller has learned the new one. The
// agent does not see when that is, so it forgets again, each time after twice as long.
//
// Until then packets of OVN with an address that is gone are dropped: the answers would go to the
// address's new owner.
const (
	maxFormer  = 64 // hosts with temporary IPv6 addresses have new ones every day
	firstFlush = 250 * time.Millisecond
	flushes    = 12 // the last about eight minutes after the first
)

// former are addresses that were the host's and are not any more. Its methods are safe for
// concurrent use.
type former struct {
	ovsRunDir string
	log       *slog.Logger
	wake      loop.Signal // of the gateway's loop
	own       loop.Signal // there is another address

	mu    sync.Mutex         // guards addrs
	addrs map[netip.Addr]int // how often the connections of each were forgotten
}

func newFormer(ovsRunDir string, wake loop.Signal, log *slog.Logger) *former {
	return &former{ovsRunDir: ovsRunDir, log: log, wake: wake, own: loop.NewSignal(), addrs: map[netip.Addr]int{}}
}

// add notes addresses that are gone.
func (f *former) add(addrs []netip.Addr) {
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

// oldest returns the address whose connections were forgotten most often.
func oldest(former map[netip.Addr]int) (found netip.Addr) {
	for a, times := range former {
		if !found.IsValid() || times > former[found] {
			found = a
		}
	}
	return found
}

// list returns the addresses, in no order.
func (f *former) list() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.addrs))
}

// compare notes which addresses of the node as it was the host does not have any more.
func (f *former) compare(was Node, h Host) {
	now := hostAddrs(h)
	f.mu.Lock()
	maps.DeleteFunc(f.addrs, func(a netip.Addr, _ int) bool { return slices.Contains(now, a) })
	f.mu.Unlock()
	f.add(slices.DeleteFunc(addrsOf(was.HostCIDRs), func(a netip.Addr) bool { return slices.Contains(now, a) }))
}

// run flushes the connection tracker until ctx ends.
func (f *former) run(ctx context.Context) error {
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

// flush forgets the connections of every former address once. It returns when to do so again,
// 0 for never.
func (f *former) flush(ctx context.Context) (wait time.Duration) {
	f.mu.Lock()
	due := maps.Clone(f.addrs)
	f.mu.Unlock()
	maps.DeleteFunc(due, func(_ netip.Addr, times int) bool { return times >= flushes })
	for a, times := range due {
		err := ovs.ForgetAddress(ctx, f.ovsRunDir, a)
		if err != nil && times == 0 {
			f.log.Warn("cannot forget connections of an address that is gone", "address", a, "error", err)
		}
		if err == nil && times == 0 {
			f.log.Info("connections of an address that is gone are forgotten", "address", a)
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
