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
	// addressFile is the file in the run directory with the addresses in use. An agent that starts
	// while the API server does not answer continues with them.
	addressFile = "gateway-addresses.json"
)

// knownAddresses are addresses by which the node is known.
type knownAddresses struct {
	Internal  []netip.Addr // the Node's InternalIPs
	Annotated []netip.Addr // the gateway's, in the Node's annotation k8s.ovn.org/l3-gateway-config
	InUse     []netip.Addr // the gateway's, of the last round or of the last agent
}

// addressing is the part of a Node that stays while the host has lost it for a short time.
type addressing struct {
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
//     addresses the oldest counts as the first, because any peer on the link can add one with a
//     router advertisement.
//  4. the first single address, an InternalIP before others
//
// Secondary addresses are only used for 1 and 2: they depend on another address, or are about to
// go.
func preferred(ofDevice []link.Address, known knownAddresses, is4 bool) (netip.Prefix, bool) {
	candidates := slices.DeleteFunc(slices.Clone(ofDevice),
		func(a link.Address) bool { return a.Prefix.Addr().Is4() != is4 })
	if !is4 {
		slices.Reverse(candidates) // the kernel lists the newest first
	}

	isOnly := len(candidates) == 1
	in := func(list []netip.Addr, a link.Address) bool { return slices.Contains(list, a.Prefix.Addr()) }

	for _, isPreferred := range []func(link.Address) bool{
		func(a link.Address) bool { return in(known.Internal, a) && (!a.Prefix.IsSingleIP() || isOnly) }, // 1
		func(a link.Address) bool { return in(known.Annotated, a) },                                      // 2
		func(a link.Address) bool { return in(known.InUse, a) },                                          // 2
		func(a link.Address) bool { return !a.Secondary && !a.Prefix.IsSingleIP() && !a.Dynamic },        // 3
		func(a link.Address) bool { return !a.Secondary && !a.Prefix.IsSingleIP() },                      // 3
		func(a link.Address) bool { return !a.Secondary && in(known.Internal, a) },                       // 4
		func(a link.Address) bool { return !a.Secondary },                                                // 4
	} {
		if i := slices.IndexFunc(candidates, isPreferred); i >= 0 {
			return candidates[i].Prefix, true
		}
	}

	return netip.Prefix{}, false
}

// addressKeeper keeps the gateway's addresses while the host has lost them for a short time. Only
// the gateway's loop uses it.
type addressKeeper struct {
	hold time.Duration // see addressHold
	file runFile[addressing]
	wake loop.Signal // triggers the gateway's loop
	log  *slog.Logger

	last      addressing               // as in the file
	lostSince map[netip.Addr]time.Time // addresses of last that the host has lost
	isRead    bool                     // the file was read
}

func newAddressKeeper(s Settings, wake loop.Signal, log *slog.Logger) *addressKeeper {
	hold := addressHold
	if s.addressHold != 0 {
		hold = s.addressHold
	}

	return &addressKeeper{
		hold:      hold,
		file:      newRunFile[addressing](s.RunDir, addressFile),
		wake:      wake,
		log:       log,
		lostSince: map[netip.Addr]time.Time{},
	}
}

// inUse returns the addresses in use: since the start, or else those of the last agent.
func (k *addressKeeper) inUse() []netip.Addr {
	if !k.isRead {
		var err error
		if k.last, err = k.file.read(); err != nil {
			k.log.Warn("cannot read the gateway's last addresses", "error", err)
		}

		k.isRead = true
	}

	return addrsOf(k.last.Addresses)
}

// keepAddresses returns the node with those addresses in use that the host has lost less than
// k.hold ago. An InternalIP of the Node replaces such an address at once. keepAddresses records the
// result as the addresses in use.
func (k *addressKeeper) keepAddresses(n Node, h Host, now time.Time) Node {
	stillLost := map[netip.Addr]time.Time{}

	for _, p := range k.last.Addresses {
		a := p.Addr()

		isSame := func(has link.Address) bool { return has.Prefix.Addr() == a && !has.Duplicate }
		if slices.ContainsFunc(h.Addresses, isSame) {
			continue
		}

		since, known := k.lostSince[a]
		if !known {
			since = now

			time.AfterFunc(k.hold, k.wake.Trigger) // then a round gives the address up
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

		stillLost[a] = since
		n = n.withLostAddress(p, k.last)
	}

	k.lostSince = stillLost
	k.record(addressing{Addresses: n.Addresses, NextHops: n.NextHops, Routes: n.Routes})

	return n
}

// withLostAddress returns the node with an address that the host has lost, in place of any other of
// the family. If the node has no route of the family, it gets the last ones.
func (n Node) withLostAddress(p netip.Prefix, last addressing) Node {
	is4 := p.Addr().Is4()

	n.Addresses = slices.DeleteFunc(slices.Clone(n.Addresses),
		func(o netip.Prefix) bool { return o.Addr().Is4() == is4 })
	n.Addresses = append(n.Addresses, p)
	slices.SortFunc(n.Addresses, netip.Prefix.Compare) // IPv4 first

	n.Gone = append(slices.Clone(n.Gone), p)
	n.HostCIDRs = append(slices.Clone(n.HostCIDRs), p)
	slices.SortFunc(n.HostCIDRs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })

	if n.hasRoute(is4) {
		return n
	}

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

	return n
}

// record writes changed addresses to the file.
func (k *addressKeeper) record(now addressing) {
	if slices.Equal(now.Addresses, k.last.Addresses) && slices.Equal(now.NextHops, k.last.NextHops) &&
		slices.Equal(now.Routes, k.last.Routes) {
		return
	}

	k.last = now
	if err := k.file.write(now); err != nil {
		k.log.Warn("cannot record the gateway's addresses", "error", err)
	}
}

// RecordedAddresses returns the gateway's addresses as the last agent has recorded them. rundir is
// the agent's run directory.
func RecordedAddresses(rundir string) ([]netip.Prefix, error) {
	last, err := newRunFile[addressing](rundir, addressFile).read()
	return last.Addresses, err
}
