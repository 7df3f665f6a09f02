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

	mu    sync.Mutex                      // guards wrong and macs
	wrong map[netip.Addr]fault            // next hops that the gateway router does not have as the kernel does
	macs  map[netip.Addr]net.HardwareAddr // of next hops with a stand-in, as the kernel had them last

	right map[netip.Addr]checked // next hops that the gateway router knows; owned by the loop of syncHops
}

// fault is what is wrong with a next hop now, and since when anything has been.
type fault struct {
	since time.Time
	text  string
}

// checked is a link-layer address that the gateway router has for a next hop, and when that was
// read.
type checked struct {
	mac string
	at  time.Time
}

func newHops() *hops {
	return &hops{
		wake:  loop.NewSignal(),
		wrong: map[netip.Addr]fault{},
		macs:  map[netip.Addr]net.HardwareAddr{},
		right: map[netip.Addr]checked{},
	}
}

// Fault returns what is wrong with next hops for some time, or "".
func (r *Resolver) Fault() string {
	r.hops.mu.Lock()
	defer r.hops.mu.Unlock()

	var out []string

	for _, f := range r.hops.wrong {
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

// followHops keeps the gateway router's next hops as the kernel has them.
func (r *Resolver) followHops(ctx context.Context) error {
	isPatchPort := func(table, name string) bool { // or the bridge's device
		return table == "Interface" && (strings.HasPrefix(name, "patch-") || name == r.Bridge)
	}

	stop := r.OVS.Watch(isPatchPort, r.hops.wake)
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
// router has no link-layer address for a next hop, or another one, it gets the kernel's.
func (r *Resolver) syncHops(ctx context.Context) error {
	next := r.NextHops()
	if len(next.all()) == 0 {
		clear(r.hops.right)
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
		hop := h.router
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
			faults[hop] = fmt.Sprintf("next hop %s of %s does not answer: pods reach no other network by it; "+
				"check the router and the network's cabling", h.addr, next.Device)

			continue
		}

		if h.hasStandIn() {
			r.noteMAC(h.addr, mac)
		}

		if port == 0 { // OVN has no gateway router here yet
			continue
		}

		if last := r.hops.right[hop]; last.mac == mac.String() && time.Since(last.at) < routerCheck {
			continue
		}

		delete(r.hops.right, hop)

		routerMAC, err := ovs.RouterNeighbour(ctx, r.RunDir, hop)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if bytes.Equal(routerMAC, mac) {
			r.hops.right[hop] = checked{mac.String(), time.Now()}
			continue
		}

		faults[hop] = fmt.Sprintf("the gateway router sends to next hop %s at %s, and the host has it at %s: "+
			"pods reach no other network by it; check that ovn-controller is connected to the southbound database",
			h.addr, orNone(routerMAC), mac)

		if !h.hasStandIn() {
			errs = append(errs, r.announce(ctx, next, hop, mac, port))
		}
	}

	r.noteFaults(faults)

	return errors.Join(append(errs, link.ProbeNeighbours(unconfirmed))...)
}

// orNone returns the link-layer address for a message.
func orNone(mac net.HardwareAddr) string {
	if mac == nil {
		return "no address"
	}

	return mac.String()
}

// announce sends the gateway router an ARP or neighbour discovery reply in the name of a next hop.
// port is the bridge's port to OVN.
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
	known, isKnown := r.hops.wrong[hop]
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

// noteFaults records the present faults of next hops.
func (r *Resolver) noteFaults(faults map[netip.Addr]string) {
	r.hops.mu.Lock()
	before, wrong := r.hops.wrong, map[netip.Addr]fault{}

	for hop, text := range faults {
		since := time.Now()
		if previous, known := before[hop]; known {
			since = previous.since
		}

		wrong[hop] = fault{since, text}
	}

	r.hops.wrong = wrong
	r.hops.mu.Unlock()

	if !maps.EqualFunc(before, wrong, func(a, b fault) bool { return a.since.Equal(b.since) }) {
		r.Changed()
		time.AfterFunc(hopFault, r.Changed)
	}
}
