package gateway

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	// flushTime is the longest time in which a flush of a device removes its routes.
	flushTime = 2 * time.Second
	// managerTime is how long the agent leaves a flushed default route to the network manager,
	// which may add it again.
	managerTime = 5 * time.Second
	// routesFile is the file in the run directory with the routes seen last.
	routesFile = "host-routes.json"
)

// knownRoutes are the host's routes as seen last.
type knownRoutes struct {
	Connected []link.ConnectedRoute `json:"connected"`
	Defaults  []link.DefaultRoute   `json:"defaults"`
}

// routeKeeper adds routes of the host again that "ip route flush" or a network manager has removed:
// the connected routes of the devices that the node's traffic needs, and the default routes that
// were removed with them. A default route that was removed alone stays removed, because its
// operator wants that.
//
// It also hides short losses from the gateway: a route to other networks (a hop) counts as present
// for flushTime after it was removed, because a network manager may replace it.
//
// Only the gateway's loop uses it, except watches.
type routeKeeper struct {
	file   runFile[knownRoutes]
	wake   loop.Signal // triggers the gateway's loop
	log    *slog.Logger
	record *recorder

	changed func() // called when a route was added again

	devices atomic.Pointer[[]string] // of the last call of keepRoutes
	known   knownRoutes              // as in the file
	isRead  bool                     // the file was read
	hops    []link.Hop               // result of the last keepHops

	hopLostSince     map[link.Hop]time.Time            // of hops that are kept
	defaultLostSince map[link.DefaultRoute]time.Time   // of known default routes
	flushedAt        map[string]time.Time              // last loss of connected routes, by device
	inactiveSince    map[link.ConnectedRoute]time.Time // see inactive
}

func newRouteKeeper(
	s Settings,
	wake loop.Signal,
	record *recorder,
	changed func(),
	log *slog.Logger,
) *routeKeeper {
	return &routeKeeper{
		file:    newRunFile[knownRoutes](s.RunDir, routesFile),
		wake:    wake,
		record:  record,
		changed: changed,
		log:     log,

		hopLostSince:     map[link.Hop]time.Time{},
		defaultLostSince: map[link.DefaultRoute]time.Time{},
		flushedAt:        map[string]time.Time{},
		inactiveSince:    map[link.ConnectedRoute]time.Time{},
	}
}

// keepRoutes adds missing routes of the devices to the kernel. To h.Defaults and h.Hops it adds the
// routes that are gone for a short time.
func (k *routeKeeper) keepRoutes(devices []string, h *Host, now time.Time) error {
	k.devices.Store(&devices)

	if !k.isRead {
		var err error
		if k.known, err = k.file.read(); err != nil {
			k.log.Warn("cannot read the host's last routes", "error", err)
		}

		k.isRead = true
	}

	connected, err := k.restoreConnected(devices, now) // before restoreDefault, which uses flushedAt
	errs := []error{err}

	var kept []link.DefaultRoute

	for _, r := range k.known.Defaults {
		if slices.Contains(h.Defaults, r) {
			delete(k.defaultLostSince, r)
			continue
		}

		keep, err := k.restoreDefault(r, devices, h, now)
		errs = append(errs, err)

		if keep {
			kept = append(kept, r)
		}
	}

	h.Defaults = append(h.Defaults, kept...)
	k.keepHops(h, kept, now)
	k.setKnown(knownRoutes{Connected: connected, Defaults: slices.Clone(h.Defaults)})

	return errors.Join(errs...)
}

// keepHops adds hops to h.Hops that are gone for a short time, or whose default route is kept. It
// adds none where the device has others of the family.
func (k *routeKeeper) keepHops(h *Host, kept []link.DefaultRoute, now time.Time) {
	hasNone := func(device string, is4 bool) bool { return len(hopsOf(h.Hops, device, is4)) == 0 }
	withLost := slices.Clone(h.Hops)
	lostSince := map[link.Hop]time.Time{}

	for _, r := range k.hops {
		if !hasNone(r.Device, r.Prefix.Addr().Is4()) {
			continue
		}

		since, known := k.hopLostSince[r]
		if !known {
			since = now

			time.AfterFunc(flushTime, k.wake.Trigger) // then a round gives the hop up
		}

		if now.Sub(since) < flushTime {
			lostSince[r] = since
			withLost = append(withLost, r)
		}
	}

	h.Hops = withLost // only now, because hasNone looks at h.Hops
	k.hopLostSince = lostSince

	for _, r := range kept {
		if is4 := r.NextHop.Is4(); hasNone(r.Device, is4) {
			h.Hops = append(h.Hops, link.Hop{Device: r.Device, Prefix: link.Everything(is4), Via: r.NextHop})
		}
	}

	k.hops = h.Hops
}

// watches reports whether the routes of a device are kept. It may be called from any goroutine.
func (k *routeKeeper) watches(device string) bool {
	devices := k.devices.Load()
	return devices != nil && slices.Contains(*devices, device)
}

// restoreConnected adds missing connected routes to the kernel, and notes their devices as flushed.
// It returns all routes that are known afterwards.
func (k *routeKeeper) restoreConnected(devices []string, now time.Time) ([]link.ConnectedRoute, error) {
	var (
		all  []link.ConnectedRoute
		errs []error
	)

	for _, device := range devices {
		have, missing, err := link.ConnectedRoutes(device, k.known.Connected)
		if errors.Is(err, link.ErrNotFound) {
			continue
		}

		if err != nil { // known routes stay known
			errs = append(errs, err)
			have = slices.DeleteFunc(slices.Clone(k.known.Connected),
				func(r link.ConnectedRoute) bool { return r.Device != device })
		}

		all = slices.Concat(all, have, missing)
		all = append(all, k.inactive(device, all, now)...)

		for _, r := range missing {
			if err := link.AddConnectedRoute(r); err != nil {
				errs = append(errs, err)
				continue
			}

			k.log.Warn("a connected route was removed; added it again", "device", device, "route", r.Prefix)
			k.record.countRestoredRoute(device, now)
			k.changed()
			k.flushedAt[device] = now
		}
	}

	return all, errors.Join(errs...)
}

// inactive returns the known routes of a device that are neither present nor missing, because their
// address is gone or the device is down. They stay known for a while: the address may come back
// without them.
func (k *routeKeeper) inactive(
	device string,
	active []link.ConnectedRoute,
	now time.Time,
) []link.ConnectedRoute {
	var out []link.ConnectedRoute

	for _, r := range k.known.Connected {
		if r.Device != device {
			continue
		}

		same := func(o link.ConnectedRoute) bool { return o.Device == device && o.Prefix == r.Prefix }
		if slices.ContainsFunc(active, same) {
			delete(k.inactiveSince, r)
			continue
		}

		since, known := k.inactiveSince[r]
		if !known {
			since = now
			k.inactiveSince[r] = now
		}

		if now.Sub(since) < addressHold {
			out = append(out, r)
		} else {
			delete(k.inactiveSince, r)
		}
	}

	return out
}

// restoreDefault decides about a known default route that is gone:
//
//   - If another default route of the family exists, or the route is from a router advertisement,
//     or it was removed alone, restoreDefault forgets it.
//   - If it was flushed, restoreDefault adds it again after managerTime.
//   - Otherwise it waits, and the route stays known.
//
// keep means that the route counts as present.
func (k *routeKeeper) restoreDefault(
	r link.DefaultRoute,
	devices []string,
	h *Host,
	now time.Time,
) (keep bool, err error) {
	since, known := k.defaultLostSince[r]
	if !known {
		since = now
		k.defaultLostSince[r] = now

		time.AfterFunc(flushTime, k.wake.Trigger)
		time.AfterFunc(managerTime, k.wake.Trigger)
	}

	isReplaced := slices.ContainsFunc(h.Defaults,
		func(o link.DefaultRoute) bool { return o.NextHop.Is4() == r.NextHop.Is4() })
	isAdvertised := r.Protocol == unix.RTPROT_RA // the kernel adds it again with the next advertisement

	// A flush removes connected routes of the device at about the same time.
	flushedAt, lostConnected := k.flushedAt[r.Device]
	wasFlushed := lostConnected && flushedAt.Sub(since).Abs() < flushTime && slices.Contains(devices, r.Device)
	wasRemovedAlone := !wasFlushed && now.Sub(since) >= flushTime

	switch {
	case isReplaced, isAdvertised, wasRemovedAlone:
		delete(k.defaultLostSince, r)
		return false, nil
	case wasFlushed && now.Sub(since) >= managerTime:
		if err := link.AddDefaultRoute(r); err != nil {
			return true, err
		}

		delete(k.defaultLostSince, r)
		k.log.Warn("a default route was removed with the connected routes; added it again",
			"device", r.Device, "next hop", r.NextHop)
		k.record.countRestoredRoute(r.Device, now)
		k.changed()
	}

	return true, nil
}

// setKnown sets the known routes, and writes changed ones to the file.
func (k *routeKeeper) setKnown(now knownRoutes) {
	if slices.Equal(now.Connected, k.known.Connected) && slices.Equal(now.Defaults, k.known.Defaults) {
		return
	}

	k.known = now
	if err := k.file.write(now); err != nil {
		k.log.Warn("cannot record the host's routes", "error", err)
	}
}

// neededDevices returns the devices whose routes the node's traffic needs: that of the host's
// addresses, the bridge, and that of the tunnels.
func neededDevices(h Host, s Settings) []string {
	var out []string

	add := func(device string) {
		if device != "" && !slices.Contains(out, device) {
			out = append(out, device)
		}
	}
	add(s.HostDevice())

	if h.Bridge != nil {
		add(s.Bridge)
	}

	tunnel := s.Tunnel
	if !tunnel.IsValid() {
		tunnel = encapAddress(h, s)
	}

	for _, a := range h.Addresses {
		if a.Prefix.Addr() == tunnel {
			add(a.Device)
		}
	}

	return out
}

// MissingRoutes returns the connected routes of the host that the last agent has seen and that were
// removed since. rundir is the agent's run directory.
func MissingRoutes(rundir string) ([]link.ConnectedRoute, error) {
	known, err := newRunFile[knownRoutes](rundir, routesFile).read()
	if err != nil {
		return nil, err
	}

	var (
		out  []link.ConnectedRoute
		errs []error
	)

	seen := map[string]bool{}
	for _, r := range known.Connected {
		if seen[r.Device] {
			continue
		}

		seen[r.Device] = true

		_, missing, err := link.ConnectedRoutes(r.Device, known.Connected)
		if !errors.Is(err, link.ErrNotFound) {
			errs = append(errs, err)
		}

		out = append(out, missing...)
	}

	return out, errors.Join(errs...)
}
