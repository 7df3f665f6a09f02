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
	// managerTime is how long a default route that was flushed is left to the network manager.
	managerTime = 5 * time.Second
	// routesRecord is the file in the run directory with the routes seen last.
	routesRecord = "host-routes.json"
)

// knownRoutes are the host's routes as seen last.
type knownRoutes struct {
	Connected []link.ConnectedRoute `json:"connected"`
	Defaults  []link.DefaultRoute   `json:"defaults"`
}

// routeKeeper adds routes of the host again that "ip route flush" or a network manager has removed:
// the connected routes of the devices that the node's traffic needs, and the default routes that
// were removed with them. A default route that was removed alone stays removed, because its
// operator wants that. The gateway keeps the routes outside that are gone for up to flushTime,
// because a network manager may replace them. Only the gateway's loop uses it.
type routeKeeper struct {
	file   runFile[knownRoutes]
	wake   loop.Signal // triggers the gateway's loop
	log    *slog.Logger
	record *recorder

	changed func() // called when a route was added again

	devices atomic.Pointer[[]string] // of the last call of keep
	known   knownRoutes
	unread  bool
	hops    []link.Hop                      // as seen last, or kept
	hopless map[link.Hop]time.Time          // hops that are kept, and since when they are gone
	lost    map[link.DefaultRoute]time.Time // default routes that are gone
	flushed map[string]time.Time            // devices whose connected routes were gone
	rests   map[link.ConnectedRoute]time.Time
}

func newRouteKeeper(
	s Settings,
	wake loop.Signal,
	record *recorder,
	changed func(),
	log *slog.Logger,
) *routeKeeper {
	return &routeKeeper{
		file:    newRunFile[knownRoutes](s.RunDir, routesRecord),
		wake:    wake,
		record:  record,
		changed: changed,
		log:     log,
		unread:  true,
		hopless: map[link.Hop]time.Time{},
		lost:    map[link.DefaultRoute]time.Time{},
		flushed: map[string]time.Time{},
		rests:   map[link.ConnectedRoute]time.Time{},
	}
}

// keepRoutes adds the missing routes of the devices, and default routes of the host that are gone
// for a short time to h.Defaults and h.Hops.
func (k *routeKeeper) keepRoutes(devices []string, h *Host, now time.Time) error {
	k.devices.Store(&devices)

	if k.unread {
		var err error
		if k.known, err = k.file.read(); err != nil {
			k.log.Warn("cannot read the host's last routes", "error", err)
		}

		k.unread = false
	}

	seen, err := k.connected(devices, now)
	seen.Defaults = slices.Clone(h.Defaults)

	var kept []link.DefaultRoute

	for _, r := range k.known.Defaults {
		if slices.Contains(h.Defaults, r) {
			delete(k.lost, r)
			continue
		}

		wanted, err2 := k.missing(r, devices, h, now)
		err = errors.Join(err, err2)

		if wanted {
			seen.Defaults = append(seen.Defaults, r)
			kept = append(kept, r)
		}
	}

	h.Defaults = append(h.Defaults, kept...)
	k.keepHops(h, kept, now)
	k.set(seen)

	return err
}

// keepHops adds hops that are gone for a short time, or whose default route is kept, where the
// device has no others of the family.
func (k *routeKeeper) keepHops(h *Host, kept []link.DefaultRoute, now time.Time) {
	none := func(device string, is4 bool) bool { return len(hopsOf(h.Hops, device, is4)) == 0 }
	add := slices.Clone(h.Hops)
	gone := map[link.Hop]time.Time{}

	for _, r := range k.hops {
		if !none(r.Device, r.Prefix.Addr().Is4()) {
			continue
		}

		since, known := k.hopless[r]
		if !known {
			since = now

			time.AfterFunc(flushTime, k.wake.Trigger)
		}

		if now.Sub(since) < flushTime {
			gone[r], add = since, append(add, r)
		}
	}

	h.Hops, k.hopless = add, gone

	for _, r := range kept {
		if is4 := r.NextHop.Is4(); none(r.Device, is4) {
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

// connected adds missing connected routes, and returns all.
func (k *routeKeeper) connected(devices []string, now time.Time) (knownRoutes, error) {
	var (
		all  knownRoutes
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

		all.Connected = append(append(all.Connected, have...), missing...)
		all.Connected = append(all.Connected, k.resting(device, all.Connected, now)...)

		for _, r := range missing {
			if err := link.AddConnectedRoute(r); err != nil {
				errs = append(errs, err)
				continue
			}

			k.log.Warn("a connected route was removed; added it again", "device", device, "route", r.Prefix)
			k.record.restoredRoutes(device, now)
			k.changed()
			k.flushed[device] = now
		}
	}

	return all, errors.Join(errs...)
}

// resting returns the known routes of a device that are neither there nor missing, because their
// address is gone or the device is down. They stay known for a while: the address may come back
// without them.
func (k *routeKeeper) resting(
	device string,
	active []link.ConnectedRoute,
	now time.Time,
) []link.ConnectedRoute {
	var out []link.ConnectedRoute

	for _, r := range k.known.Connected {
		same := func(o link.ConnectedRoute) bool { return o.Device == r.Device && o.Prefix == r.Prefix }

		if r.Device != device {
			continue
		}

		if slices.ContainsFunc(active, same) {
			delete(k.rests, r)
			continue
		}

		since, known := k.rests[r]
		if !known {
			since, k.rests[r] = now, now
		}

		if now.Sub(since) < addressHold {
			out = append(out, r)
		} else {
			delete(k.rests, r)
		}
	}

	return out
}

// missing decides about a default route that is gone. It is wanted while it may have been flushed.
// If it was, and no network manager replaces it, missing adds it again.
func (k *routeKeeper) missing(
	r link.DefaultRoute,
	devices []string,
	h *Host,
	now time.Time,
) (wanted bool, err error) {
	since, known := k.lost[r]
	if !known {
		since, k.lost[r] = now, now
		time.AfterFunc(flushTime, k.wake.Trigger)
		time.AfterFunc(managerTime, k.wake.Trigger)
	}

	replaced := slices.ContainsFunc(h.Defaults,
		func(o link.DefaultRoute) bool { return o.NextHop.Is4() == r.NextHop.Is4() })
	at, flushed := k.flushed[r.Device]
	flushed = flushed && at.Sub(since).Abs() < flushTime && slices.Contains(devices, r.Device)

	switch {
	case replaced, r.Protocol == unix.RTPROT_RA, !flushed && now.Sub(since) >= flushTime:
		delete(k.lost, r)
		return false, nil
	case flushed && now.Sub(since) >= managerTime:
		if err := link.AddDefaultRoute(r); err != nil {
			return true, err
		}

		delete(k.lost, r)
		k.log.Warn("a default route was removed with the connected routes; added it again",
			"device", r.Device, "next hop", r.NextHop)
		k.record.restoredRoutes(r.Device, now)
		k.changed()
	}

	return true, nil
}

// set records changed routes.
func (k *routeKeeper) set(seen knownRoutes) {
	if slices.Equal(seen.Connected, k.known.Connected) && slices.Equal(seen.Defaults, k.known.Defaults) {
		return
	}

	k.known = seen
	if err := k.file.write(seen); err != nil {
		k.log.Warn("cannot record the host's routes", "error", err)
	}
}

// reliedOn returns the devices whose routes the node's traffic needs: that of the host's addresses,
// the bridge, and that of the tunnels.
func reliedOn(h Host, s Settings) []string {
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
	known, err := newRunFile[knownRoutes](rundir, routesRecord).read()
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
