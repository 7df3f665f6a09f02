package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch calls changed with a device's name after one of these events:
//
//   - the device changed, including its MAC (as after a bond's failover), its MTU, or another
//     device that took its name
//   - a route through it was lost
//   - it lost a tc filter or qdisc
//
// It calls changed with "" after a change that may concern any device: of addresses, of routes that
// Hops may return, of routing rules or nexthop objects. It also does so at the start, and whenever
// events may have been lost. It returns nil when ctx ends. changed must not block.
func Watch(ctx context.Context, log *slog.Logger, changed func(device string)) error {
	return keepWatching(ctx, log, func() error { return watchOnce(ctx, changed) }, func() { changed("") })
}

// keepWatching repeats watch, which returns an error when events may have been lost, until ctx
// ends. After each error it calls lost. It returns nil.
func keepWatching(ctx context.Context, log *slog.Logger, watch func() error, lost func()) error {
	for ctx.Err() == nil {
		err := watch()

		if ctx.Err() != nil {
			return nil
		}

		log.Warn("netlink watch ended, restarting", "error", err)
		lost()

		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}

	return nil
}

// firstErrors returns a channel and a function that sends errors to it. The function never blocks:
// it drops errors for which the channel has no room.
func firstErrors() (errs <-chan error, send func(error)) {
	failed := make(chan error, 4)

	return failed, func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
}

// watchOnce is Watch until events may have been lost, and then returns the reason. The end of done
// ends its subscriptions.
func watchOnce(ctx context.Context, changed func(string)) error {
	done := make(chan struct{})
	defer close(done)

	failed, onError := firstErrors()

	links := make(chan netlink.LinkUpdate, 64)
	addrs := make(chan netlink.AddrUpdate, 64)
	routes := make(chan netlink.RouteUpdate, 64)

	ofLinks := netlink.LinkSubscribeOptions{ErrorCallback: onError}
	if err := netlink.LinkSubscribeWithOptions(links, done, ofLinks); err != nil {
		return fmt.Errorf("subscribe to devices: %w", err)
	}

	ofAddrs := netlink.AddrSubscribeOptions{ErrorCallback: onError}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, ofAddrs); err != nil {
		return fmt.Errorf("subscribe to addresses: %w", err)
	}

	ofRoutes := netlink.RouteSubscribeOptions{ErrorCallback: onError}
	if err := netlink.RouteSubscribeWithOptions(routes, done, ofRoutes); err != nil {
		return fmt.Errorf("subscribe to routes: %w", err)
	}

	filters := make(chan int, 64) // interface indexes
	if err := subscribeFilters(filters, done, onError); err != nil {
		return err
	}

	rules := make(chan struct{}, 1)
	if err := subscribeRules(rules, done, onError); err != nil {
		return err
	}

	changed("") // for events before the subscription

	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case u, ok := <-links:
			if !ok {
				return fmt.Errorf("subscription to devices ended")
			}

			changed(u.Attrs().Name)
		case _, ok := <-addrs:
			if !ok {
				return fmt.Errorf("subscription to addresses ended")
			}

			changed("")
		case <-rules:
			changed("")
		case index := <-filters:
			if name := nameOf(index); name != "" {
				changed(name)
			}
		case u, ok := <-routes:
			if !ok {
				return fmt.Errorf("subscription to routes ended")
			}

			if leadsOutside(u.Route) {
				changed("")
			} else if u.Type == unix.RTM_DELROUTE {
				if name := nameOf(u.LinkIndex); name != "" {
					changed(name)
				}
			}
		}
	}
}

// nameOf returns the name of the device with this index, or "" if the device is gone. Its removal
// has an event of its own.
func nameOf(index int) string {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return ""
	}

	return l.Attrs().Name
}

// leadsOutside reports whether Hops may return the route.
func leadsOutside(route netlink.Route) bool {
	to, ok := prefixOf(route.Dst)
	if !ok {
		to = Everything(route.Family == unix.AF_INET)
	}

	return slices.ContainsFunc(regions(to.Addr().Is4()), func(r region) bool {
		return to.Bits() <= r.bits && slices.ContainsFunc(r.probes, to.Contains)
	})
}

// subscribeFilters sends the interface index of every device that loses a tc filter or a qdisc,
// until done is closed. It ignores additions: most are the agent's own, and the receiver itself
// adds filters.
func subscribeFilters(out chan<- int, done <-chan struct{}, failed func(error)) error {
	return subscribe(done, failed, func(m syscall.NetlinkMessage) {
		// struct tcmsg of linux/rtnetlink.h begins with the family, padding, and the interface
		// index.
		const indexAt, indexEnd = 4, 8

		isRemoval := m.Header.Type == unix.RTM_DELTFILTER || m.Header.Type == unix.RTM_DELQDISC
		if !isRemoval || len(m.Data) < indexEnd {
			return
		}

		select {
		case out <- int(int32(binary.NativeEndian.Uint32(m.Data[indexAt:]))):
		case <-done:
		}
	}, unix.RTNLGRP_TC)
}

// subscribeRules sends a value after changes of routing rules and of nexthop objects, until done is
// closed. out must have room for one value. Nexthop objects matter because the kernel does not
// announce the routes that are lost with them.
func subscribeRules(out chan<- struct{}, done <-chan struct{}, failed func(error)) error {
	return subscribe(done, failed, func(syscall.NetlinkMessage) {
		select {
		case out <- struct{}{}:
		default:
		}
	}, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
}

// subscribe calls received with each message of the groups until done is closed, and failed with
// the error that ends the subscription before.
func subscribe(
	done <-chan struct{},
	failed func(error),
	received func(syscall.NetlinkMessage),
	groups ...uint,
) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return fmt.Errorf("subscribe to netlink groups %v: %w", groups, err)
	}

	go func() {
		<-done
		s.Close()
	}()
	go func() {
		for {
			msgs, _, err := s.Receive()
			if err != nil {
				select {
				case <-done:
				default:
					failed(fmt.Errorf("receive events of netlink groups %v: %w", groups, err))
				}

				return
			}

			for _, m := range msgs {
				received(m)
			}
		}
	}()

	return nil
}

// WatchNeighbours calls changed with each neighbour whose entry in the kernel has changed. Device
// is "" if the device is gone. It calls changed with the zero Neighbour at the start, and whenever
// events may have been lost. It returns nil when ctx ends. changed must not block.
func WatchNeighbours(ctx context.Context, log *slog.Logger, changed func(Neighbour)) error {
	watch := func() error { return watchNeighbours(ctx, changed) }
	lost := func() { changed(Neighbour{}) }

	return keepWatching(ctx, log, watch, lost)
}

// watchNeighbours is WatchNeighbours until events may have been lost, and then returns the reason.
func watchNeighbours(ctx context.Context, changed func(Neighbour)) error {
	done := make(chan struct{})
	defer close(done)

	failed, onError := firstErrors()

	updates := make(chan netlink.NeighUpdate, 64)
	options := netlink.NeighSubscribeOptions{ErrorCallback: onError}

	if err := netlink.NeighSubscribeWithOptions(updates, done, options); err != nil {
		return fmt.Errorf("subscribe to neighbours: %w", err)
	}

	changed(Neighbour{}) // for events before the subscription

	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case u, ok := <-updates:
			if !ok {
				return fmt.Errorf("subscription to neighbours ended")
			}

			if a, ok := netip.AddrFromSlice(u.IP); ok {
				changed(Neighbour{Device: nameOf(u.LinkIndex), Addr: a.Unmap()})
			}
		}
	}
}
