package nicbridge

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// The order of routes matters. The kernel keeps routes with the same table, destination and metric,
// a group, in the order of their addition, and prefers the first one. In IPv4 a request can add a
// route at the front or at the end of its group. If other devices have routes in the group,
// moveRoutes puts the moved routes to the side of these on which they were (Route.First).

// moveRoutes adds every route of the snapshot to device to, then removes them from device from. So
// each route exists twice for a moment, and is never missing.
func (m *mover) moveRoutes(ctx context.Context, from, to device) error {
	wanted, err := m.plan(to.index)
	if err != nil {
		return err
	}

	for _, w := range wanted {
		if err := m.addRoute(ctx, w, from, to); err != nil {
			return err
		}
	}

	if err := m.deleteRoutes(ctx, to, func(r route) bool { return m.isStrayRoute(r, wanted) }); err != nil {
		return err
	}

	old, err := m.plan(from.index)
	if err != nil {
		return err
	}

	moved := map[string]bool{}
	for _, w := range old {
		moved[canonicalRoute(w.msg)] = true
	}

	return m.deleteRoutes(ctx, from, func(r route) bool { return moved[key(r)] })
}

// wantedRoute is a route with its intended position: Route.First and Route.Shared.
type wantedRoute struct {
	route
	first, shared bool
}

// plan returns the snapshot's routes, retargeted to the device with this index, in the order of
// addition. Routes without a next hop come first, because next hops must be reachable.
func (m *mover) plan(index int) ([]wantedRoute, error) {
	var direct, via []wantedRoute

	for _, r := range m.snap.Had.Routes {
		msg, err := retargetRoute(r.Message, m.snap.Link.Index, index)
		if err != nil {
			return nil, err
		}

		parsed, err := parseRoute(msg)
		if err != nil {
			return nil, err
		}

		w := wantedRoute{parsed, r.First, r.Shared}
		if parsed.hasGateway() {
			via = append(via, w)
		} else {
			direct = append(direct, w)
		}
	}

	return append(arrange(direct), arrange(via)...), nil
}

// arrange returns the routes in the order of addition: those for the front of their group in
// reverse order, then the others.
func arrange(list []wantedRoute) []wantedRoute {
	var front, back []wantedRoute

	for _, w := range list {
		if w.first && w.family == unix.AF_INET {
			front = append(front, w)
		} else {
			back = append(back, w)
		}
	}

	slices.Reverse(front)

	return append(front, back...)
}

// key identifies a route of a dump: it returns canonicalRoute of the request that would make it.
func key(r route) string {
	msg, err := retargetRoute(r.msg, 0, 0)
	if err != nil {
		return ""
	}

	return canonicalRoute(msg)
}

// addRoute adds a route at its position, unless the route is there already.
func (m *mover) addRoute(ctx context.Context, w wantedRoute, from, to device) error {
	have, err := routes()
	if err != nil {
		return err
	}

	if w.advertised() {
		return m.addAdvertised(ctx, w, have, to)
	}

	i := slices.IndexFunc(have, func(r route) bool { return key(r) == canonicalRoute(w.msg) })
	exists := i >= 0
	mustPrecede := w.first && w.shared // routes of other devices

	if exists && (!mustPrecede || inFront(have[:i], w, from, to)) {
		return nil
	}

	what := "add route " + destination(w.route) + " to " + to.name
	if exists { // the kernel created it with the address, behind routes of other devices
		takeAway := "take route " + destination(w.route) + " of " + to.name + " to put it first"
		if err := m.send(ctx, takeAway, unix.RTM_DELROUTE, 0, w.msg); err != nil {
			return err
		}
	}

	flags := unix.NLM_F_CREATE

	switch {
	case w.family == unix.AF_INET && !w.first:
		flags |= unix.NLM_F_APPEND
	case w.family == unix.AF_INET6 && w.hasGateway():
		flags |= unix.NLM_F_REPLACE // otherwise the kernel would merge it into a multipath route
	}

	return m.send(ctx, what, unix.RTM_NEWROUTE, flags, w.msg)
}

// inFront reports whether all routes of w's group in before, the routes that precede it, use the
// NIC or the bridge.
func inFront(before []route, w wantedRoute, from, to device) bool {
	foreign := func(r route) bool { return r.group == w.group && !r.by(from.index) && !r.by(to.index) }

	return !slices.ContainsFunc(before, foreign)
}

// addAdvertised adds a copy of a route from router advertisements, with a metric one higher, so
// that the kernel can add its own. With the same metric the kernel would mistake the copy for its
// own, report an error and ignore the rest of each advertisement.
func (m *mover) addAdvertised(ctx context.Context, w wantedRoute, have []route, to device) error {
	added := func(r route) bool { return r.advertised() && r.by(to.index) && sameHops(r, w.route) }
	if slices.ContainsFunc(have, added) {
		return nil
	}

	msg, err := w.worse()
	if err != nil {
		return err
	}

	what := "add route " + destination(w.route) + " to " + to.name

	return m.send(ctx, what, unix.RTM_NEWROUTE, unix.NLM_F_CREATE, msg)
}

// sameHops reports whether two routes have the same next hops.
func sameHops(a, b route) bool { return slices.Equal(a.hops, b.hops) }

// deleteRoutes deletes the unwanted routes by the device.
func (m *mover) deleteRoutes(ctx context.Context, of device, unwanted func(route) bool) error {
	have, err := routes()
	if err != nil {
		return err
	}

	for _, r := range have {
		if !r.by(of.index) || r.automatic() || !unwanted(r) {
			continue
		}

		msg, err := retargetRoute(r.msg, 0, 0)
		if err != nil {
			return err
		}

		what := "delete route " + destination(r) + " of " + of.name
		if err := m.send(ctx, what, unix.RTM_DELROUTE, 0, msg); err != nil {
			return err
		}
	}

	return nil
}

// isStrayRoute reports whether the kernel created the route with a moved address, and the NIC did
// not have it.
func (m *mover) isStrayRoute(r route, wanted []wantedRoute) bool {
	kernelMade := slices.ContainsFunc(m.snap.Had.Addresses, func(msg []byte) bool {
		a, err := parseAddr(msg)
		return err == nil && r.connected(a)
	})

	isWanted := func(w wantedRoute) bool { return canonicalRoute(w.msg) == key(r) }

	return kernelMade && !slices.ContainsFunc(wanted, isWanted)
}

// destination returns the destination and table of a route for people.
func destination(r route) string {
	if !r.dst.IsValid() {
		return fmt.Sprintf("default, family %d, table %d", r.family, r.table)
	}

	return fmt.Sprintf("%s, table %d", r.dst, r.table)
}
