package gateway

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// addressHold is how long the gateway keeps an address that its device has lost. Network
	// managers take an address away for seconds when they restart or renew a lease.
	addressHold = 30 * time.Second
	// chosenRecord is the file in the run directory with the addresses in use. An agent that starts
	// while the API server does not answer continues with them.
	chosenRecord = "gateway-addresses.json"
)

// knownAddresses are addresses by which the node is known.
type knownAddresses struct {
	Internal  []netip.Addr // the Node's InternalIPs
	Annotated []netip.Addr // the gateway's, in the Node's annotation
	InUse     []netip.Addr // the gateway's
}

// chosen is the part of a Node that stays while the host has lost it for a short time.
type chosen struct {
	Addresses []netip.Prefix `json:"addresses"`
	NextHops  []netip.Addr   `json:"nextHops"`
	Routes    []link.Hop     `json:"routes,omitempty"`
}

// preferred selects the gateway's address of a family from the addresses of its device. OVN's
// connections depend on it. The order is:
//
//  1. an InternalIP of the Node, unless it is a single address (/32 or /128) and the device has
//     others: it may be virtual, and on another node soon
//  2. the address in the Node's annotation, or else the one in use
//  3. the first address with an on-link prefix, and permanent ones before those that expire. Of IPv6
//     addresses the kernel lists the newest first, and any peer on the link can add one with a router
//     advertisement. So the oldest IPv6 address counts as the first.
//  4. the first single address, an InternalIP before others
//
// Secondary addresses are only used for 1 and 2: they depend on another address, or are about to
// go.
func preferred(of []link.Address, known knownAddresses, is4 bool) (netip.Prefix, bool) {
	of = slices.DeleteFunc(slices.Clone(of),
		func(a link.Address) bool { return a.Prefix.Addr().Is4() != is4 })
	if !is4 {
		slices.Reverse(of)
	}

	among := func(list []netip.Addr, a link.Address) bool { return slices.Contains(list, a.Prefix.Addr()) }
	for _, fits := range []func(link.Address) bool{
		func(a link.Address) bool { return among(known.Internal, a) && (!a.Prefix.IsSingleIP() || len(of) == 1) },
		func(a link.Address) bool { return among(known.Annotated, a) },
		func(a link.Address) bool { return among(known.InUse, a) },
		func(a link.Address) bool { return !a.Secondary && !a.Prefix.IsSingleIP() && !a.Dynamic },
		func(a link.Address) bool { return !a.Secondary && !a.Prefix.IsSingleIP() },
		func(a link.Address) bool { return !a.Secondary && among(known.Internal, a) },
		func(a link.Address) bool { return !a.Secondary },
	} {
		if i := slices.IndexFunc(of, fits); i >= 0 {
			return of[i].Prefix, true
		}
	}

	return netip.Prefix{}, false
}

// addressKeeper keeps the gateway's addresses while the host has lost them for a short time. Only
// the gateway's loop uses it.
type addressKeeper struct {
	hold   time.Duration
	file   runFile[chosen]
	wake   loop.Signal // triggers the gateway's loop
	log    *slog.Logger
	last   chosen
	gone   map[netip.Addr]time.Time // addresses of last that the host has lost
	unread bool                     // the record was not read yet
}

func newAddressKeeper(s Settings, wake loop.Signal, log *slog.Logger) *addressKeeper {
	hold := addressHold
	if s.addressHold != 0 {
		hold = s.addressHold
	}

	return &addressKeeper{
		hold:   hold,
		file:   newRunFile[chosen](s.RunDir, chosenRecord),
		wake:   wake,
		log:    log,
		gone:   map[netip.Addr]time.Time{},
		unread: true,
	}
}

// inUse returns the addresses in use: since the start, or else those of the last agent.
func (k *addressKeeper) inUse() []netip.Addr {
	if k.unread {
		var err error
		if k.last, err = k.file.read(); err != nil {
			k.log.Warn("cannot read the gateway's last addresses", "error", err)
		}

		k.unread = false
	}

	return addrsOf(k.last.Addresses)
}

// keepAddresses returns the node with those addresses in use that the host has lost less than
// k.hold ago. An InternalIP of the Node replaces such an address at once.
func (k *addressKeeper) keepAddresses(n Node, h Host, now time.Time) Node {
	left := map[netip.Addr]time.Time{}

	for _, p := range k.last.Addresses {
		a := p.Addr()

		held := func(has link.Address) bool { return has.Prefix.Addr() == a && !has.Duplicate }
		if slices.ContainsFunc(h.Addresses, held) {
			continue
		}

		since, known := k.gone[a]
		if !known {
			since = now

			time.AfterFunc(k.hold, k.wake.Trigger)
		}

		next := n.Address(a.Is4())
		switch {
		case next.IsValid() && slices.Contains(h.Known.Internal, next):
			k.log.Info("the gateway's address changed to the Node's InternalIP", "address", next, "before", a)
			continue
		case now.Sub(since) >= k.hold:
			k.log.Warn("the gateway's address is gone", "address", a, "next", next)
			continue
		case !known:
			k.log.Warn("the gateway's address is gone; it is kept for now", "address", a, "for", k.hold)
		}

		left[a] = since
		n = n.with(p, k.last)
	}

	k.gone = left
	k.set(chosen{Addresses: n.Addresses, NextHops: n.NextHops, Routes: n.Routes})

	return n
}

// with returns the node with an address that the host has lost, and the last routes of its family.
func (n Node) with(p netip.Prefix, last chosen) Node {
	is4 := p.Addr().Is4()
	n.Addresses = slices.DeleteFunc(slices.Clone(n.Addresses),
		func(o netip.Prefix) bool { return o.Addr().Is4() == is4 })
	n.Addresses, n.Gone = append(n.Addresses, p), append(slices.Clone(n.Gone), p)
	slices.SortFunc(n.Addresses, netip.Prefix.Compare)
	n.HostCIDRs = append(slices.Clone(n.HostCIDRs), p)
	slices.SortFunc(n.HostCIDRs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })

	if !n.leaves(is4) {
		n.NextHops, n.Routes = slices.Clone(n.NextHops), slices.Clone(n.Routes)
		for _, hop := range last.NextHops {
			if hop.Is4() == is4 {
				n.NextHops = append(n.NextHops, hop)
			}
		}

		for _, r := range last.Routes {
			if r.Prefix.Addr().Is4() == is4 {
				n.Routes = append(n.Routes, r)
			}
		}

		slices.SortStableFunc(n.NextHops,
			func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() }) // IPv4 first
	}

	return n
}

// set records changed addresses.
func (k *addressKeeper) set(c chosen) {
	if slices.Equal(c.Addresses, k.last.Addresses) && slices.Equal(c.NextHops, k.last.NextHops) &&
		slices.Equal(c.Routes, k.last.Routes) {
		return
	}

	k.last = c
	if err := k.file.write(c); err != nil {
		k.log.Warn("cannot record the gateway's addresses", "error", err)
	}
}

// RecordedAddresses returns the gateway's addresses as the last agent has recorded them. rundir is
// the agent's run directory.
func RecordedAddresses(rundir string) ([]netip.Prefix, error) {
	last, err := newRunFile[chosen](rundir, chosenRecord).read()
	return last.Addresses, err
}
