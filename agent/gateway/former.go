package gateway

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// Connections are translated to the address that the node had when they began, for as long as
// packets come. Those of an address that is gone are forgotten, so that what goes on is
// translated anew. OVN uses the old one until the controller has learned the new one, which has
// no end that the agent sees: it is done again, each time after twice as long.
//
// What OVN sends with an address that is gone is dropped meanwhile: the answers would come to
// whoever has it now.
const (
	maxFormer  = 64 // hosts with temporary IPv6 addresses have new ones every day
	firstFlush = 250 * time.Millisecond
	flushes    = 12 // the last about eight minutes after the first
)

// Forget notes that addresses were the node's and are not any more, as an agent before has told
// the controller.
func (g *Gateway) Forget(addrs []netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range addrs {
		if _, known := g.former[a]; known {
			continue
		}
		if len(g.former) >= maxFormer {
			delete(g.former, oldest(g.former))
		}
		g.former[a] = 0
		g.formerWake.Kick()
		g.wake.Kick()
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

// noteFormer compares the host with the node as it was.
func (g *Gateway) noteFormer(h Host) {
	now := hostAddrs(h)
	g.mu.Lock()
	for a := range g.former {
		if slices.Contains(now, a) {
			delete(g.former, a)
		}
	}
	g.mu.Unlock()
	gone := slices.DeleteFunc(addrsOf(g.applied.node.HostCIDRs), func(a netip.Addr) bool { return slices.Contains(now, a) })
	g.Forget(gone)
}

// forgetFormer flushes the connection tracker as long as ctx lives.
func (g *Gateway) forgetFormer(ctx context.Context) error {
	for {
		wait := g.flushFormer(ctx)
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-g.formerWake:
		}
	}
}

// flushFormer flushes once for every former address, and returns when to do so again, 0 for never.
func (g *Gateway) flushFormer(ctx context.Context) (wait time.Duration) {
	g.mu.Lock()
	due := map[netip.Addr]int{}
	for a, times := range g.former {
		if times < flushes {
			due[a] = times
		}
	}
	g.mu.Unlock()
	for a, times := range due {
		err := ovs.ForgetAddress(ctx, g.s.OVSRunDir, a)
		if err != nil && times == 0 {
			g.log.Warn("cannot forget connections of an address that is gone", "address", a, "error", err)
		}
		if err == nil && times == 0 {
			g.log.Info("connections of an address that is gone are forgotten", "address", a)
		}
		if next := firstFlush << times; wait == 0 || next < wait {
			wait = next
		}
		g.mu.Lock()
		if _, still := g.former[a]; still {
			g.former[a] = times + 1
		}
		g.mu.Unlock()
	}
	return wait
}
