package neighbour

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Times of the checks of next hops.
const (
	// hopCheck is how often the kernel's entries of next hops are checked, because entries that no
	// packet of the host uses cause no event.
	hopCheck = 5 * time.Second
	// routerCheck is how often a next hop is compared that the gateway router knew at the last
	// comparison: its entry expires.
	routerCheck = 30 * time.Second
	// hopRetry is the wait after an answer to the gateway router, for ovn-controller to write its
	// flow. When the fault is older than hopFault, the wait is hopCheck.
	hopRetry = time.Second
	// hopFault is how long a next hop may differ before that is a fault.
	hopFault = 15 * time.Second
)

// hops is the state of the gateway router's next hops.
type hops struct {
	wake loop.Signal

	mu     sync.Mutex                      // guards faults and macs
	faults map[netip.Addr]fault            // by the address by which the gateway router knows the next hop
	macs   map[netip.Addr]net.HardwareAddr // of next hops with a stand-in, as the kernel had them last

	// inSync has the next hops for which the gateway router had the kernel's link-layer address at
	// the last comparison. The keys are those of faults. The loop of syncHops owns it.
	inSync map[netip.Addr]comparison
}

// fault is the present fault of a next hop. since is the time since when it has had any fault.
type fault struct {
	since time.Time
	text  string
}

// comparison is the link-layer address that the gateway router had for a next hop, and the time of
// the comparison.
type comparison struct {
	mac string
	at  time.Time
}

func newHops() *hops {
	return &hops{
		wake:   loop.NewSignal(),
		faults: map[netip.Addr]fault{},
		macs:   map[netip.Addr]net.HardwareAddr{},
		inSync: map[netip.Addr]comparison{},
	}
}

// Fault returns the faults of next hops that have lasted for hopFault, or "".
func (r *Resolver) Fault() string {
	r.hops.mu.Lock()
	defer r.hops.mu.Unlock()

	var out []string

	for _, f := range r.hops.faults {
		if time.Since(f.since) >= hopFault {
			out = append(out, f.text)
		}
	}

	slices.Sort(out)

	return strings.Join(out, "; ")
}

// MAC returns the link-layer address that the kernel has, or had last, for a next hop with a
// stand-in; nil if it had none.
func (r *Resolver) MAC(hop netip.Addr) net.HardwareAddr {
	r.hops.mu.Lock()
	defer r.hops.mu.Unlock()

	return r.hops.macs[hop]
}

// followHops keeps the gateway router's next hops as the kernel has them, until ctx ends.
func (r *Resolver) followHops(ctx context.Context) error {
	// The patch port to OVN, and the bridge's device.
	relevant := func(table, name string) bool {
		return table == "Interface" && (strings.HasPrefix(name, "patch-") || name == r.Bridge)
	}

	stop := r.OVS.Watch(relevant, r.hops.wake)
	defer stop()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return link.WatchNeighbours(ctx, r.Log, func(n link.Neighbour) {
			next := r.NextHops()
			isHop := func(h hop) bool { return h.addr == n.Addr }

			if n.Device == "" || n.Device == next.Device && slices.ContainsFunc(next.all(), isHop) {
				r.hops.wake.Trigger()
			}
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "next hops",
			Wake:   r.hops.wake,
			Resync: hopCheck,
			Log:    r.Log,
			Apply:  r.syncHops,
		})
	})

	return group.Wait()
}

// hop is a next hop and the address by which the gateway router knows it.
type hop struct{ addr, router netip.Addr }

// hasStandIn reports whether the router knows the next hop by another address.
func (h hop) hasStandIn() bool { return h.addr != h.router }

// all returns all next hops, those with a stand-in last.
func (n NextHops) all() []hop {
	var out []hop
	for _, a := range n.Hops {
		out = append(out, hop{a, a})
	}

	for _, a := range slices.SortedFunc(maps.Keys(n.StandIns), netip.Addr.Compare) {
		out = append(out, hop{a, n.StandIns[a]})
	}

	return out
}

// noteMAC records the link-layer address of a next hop with a stand-in.
func (r *Resolver) noteMAC(hop netip.Addr, mac net.HardwareAddr) {
	r.hops.mu.Lock()
	changed := !bytes.Equal(r.hops.macs[hop], mac)
	r.hops.macs[hop] = mac
	r.hops.mu.Unlock()

	if changed {
		r.Changed()
	}
}

// syncHops has the kernel ask for each next hop that it has not heard for a while. If the gateway
// router has no link-layer address for a next hop, or another one, syncHops sends it the kernel's.
// All differences become faults, which Fault returns if they last.
func (r *Resolver) syncHops(ctx context.Context) error {
	next := r.NextHops()
	if len(next.all()) == 0 {
		clear(r.hops.inSync)
		r.noteFaults(nil)

		return nil
	}

	port, err := r.PatchPort(ctx)
	if err != nil {
		return err
	}

	var (
		unconfirmed []link.Neighbour
		errs        []error
	)

	faults := map[netip.Addr]string{} // by the router's address of a next hop

	for _, h := range next.all() {
		n := link.Neighbour{Device: next.Device, Addr: h.addr}

		mac, confirmed, err := link.NeighbourMAC(n)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if !confirmed && !slices.Contains(unconfirmed, n) {
			unconfirmed = append(unconfirmed, n)
		}

		if mac == nil {
			faults[h.router] = fmt.Sprintf("next hop %s of %s does not answer: pods reach no other network by it; "+
				"check the router and the network's cabling", h.addr, next.Device)

			continue
		}

		if h.hasStandIn() {
			r.noteMAC(h.addr, mac)
		}

		if port == 0 { // OVN has no gateway router here yet
			continue
		}

		text, err := r.syncRouter(ctx, next, h, mac, port)
		if text != "" {
			faults[h.router] = text
		}

		errs = append(errs, err)
	}

	r.noteFaults(faults)

	return errors.Join(append(errs, link.ProbeNeighbours(unconfirmed))...)
}

// syncRouter compares the link-layer address that the gateway router has for a next hop with mac,
// the kernel's. If they differ, it sends the router the kernel's and returns the text of the fault.
// port is the bridge's port to OVN. The comparison reads flows of br-int, so it is repeated only
// after routerCheck while they do not differ.
func (r *Resolver) syncRouter(
	ctx context.Context,
	next NextHops,
	h hop,
	mac net.HardwareAddr,
	port uint32,
) (fault string, err error) {
	if last := r.hops.inSync[h.router]; last.mac == mac.String() && time.Since(last.at) < routerCheck {
		return "", nil
	}

	delete(r.hops.inSync, h.router)

	routerMAC, err := ovs.RouterNeighbour(ctx, r.RunDir, h.router)
	if err != nil {
		return "", err
	}

	if bytes.Equal(routerMAC, mac) {
		r.hops.inSync[h.router] = comparison{mac.String(), time.Now()}
		return "", nil
	}

	fault = fmt.Sprintf("the gateway router sends to next hop %s at %s, and the host has it at %s: "+
		"pods reach no other network by it; check that ovn-controller is connected to the southbound database",
		h.addr, orNone(routerMAC), mac)

	if h.hasStandIn() {
		return fault, nil // the controller gives the router this address: see MAC
	}

	return fault, r.announce(ctx, next, h.router, mac, port)
}

// orNone returns the link-layer address for a message.
func orNone(mac net.HardwareAddr) string {
	if mac == nil {
		return "no address"
	}

	return mac.String()
}

// announce sends the gateway router an ARP reply or neighbour advertisement in the name of a next
// hop, with the link-layer address mac. port is the bridge's port to OVN.
func (r *Resolver) announce(
	ctx context.Context,
	next NextHops,
	hop netip.Addr,
	mac net.HardwareAddr,
	port uint32,
) error {
	i := slices.IndexFunc(next.Addrs, func(a netip.Addr) bool { return a.Is4() == hop.Is4() })
	if i < 0 {
		return nil // the gateway router has no address of this family yet
	}

	answer, err := frame.Answer(frame.Host{MAC: mac, Addr: hop},
		frame.Host{MAC: next.MAC, Addr: next.Addrs[i]}, next.VLAN)
	if err != nil {
		return err
	}

	r.hops.mu.Lock()
	known, isKnown := r.hops.faults[hop]
	r.hops.mu.Unlock()

	if !isKnown {
		r.Log.Info("giving the gateway router the link-layer address of its next hop",
			"next hop", hop, "address", mac.String())
	}

	if !isKnown || time.Since(known.since) < hopFault {
		time.AfterFunc(hopRetry, r.hops.wake.Trigger)
	}

	return ovs.SendTo(ctx, r.RunDir, r.Bridge, strconv.FormatUint(uint64(port), 10), answer)
}

// noteFaults records the present faults of next hops. When one begins or ends, it calls Changed at
// once, and again when Fault begins to return it.
func (r *Resolver) noteFaults(texts map[netip.Addr]string) {
	r.hops.mu.Lock()
	before, now := r.hops.faults, map[netip.Addr]fault{}

	for hop, text := range texts {
		since := time.Now()
		if previous, known := before[hop]; known {
			since = previous.since
		}

		now[hop] = fault{since, text}
	}

	r.hops.faults = now
	r.hops.mu.Unlock()

	if !maps.EqualFunc(before, now, func(a, b fault) bool { return a.since.Equal(b.since) }) {
		r.Changed()
		time.AfterFunc(hopFault, r.Changed)
	}
}
