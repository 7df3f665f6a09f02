package service

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Changes lists the entries of a node's tables that have changed since the last call of
// Tables.Changes. Tables computes it by comparison: before the first edit of an entry, it notes the
// entry's state (previousState), and Changes compares this with the present state.
type Changes struct {
	// Set and Unset are the new and changed, and the removed entries of the gateway's table of
	// frontends.
	Set   map[verdict.ServiceKey]verdict.ServiceOwner
	Unset []verdict.ServiceKey // sorted
	// Counts maps frontends to the Service port that counts their packets. The zero value stops
	// counting.
	Counts  map[verdict.ServiceKey]bpf.ServicePort
	Sockets []bpf.SockService // sorted by key; an entry without ports is deleted
	VIPs    bool              // whether the set of VIPs has changed
	// Redirects reports whether Tables.Redirects has changed.
	Redirects bool
	// Lookups maps new and changed frontends of verdict.ServiceHost to the sockets behind them.
	// Unlookups are those without a socket now.
	Lookups   map[verdict.ServiceKey]netip.AddrPort
	Unlookups []verdict.ServiceKey // sorted
	// Gone lists UDP endpoints that no longer answer. Sockets that a frontend connected to them
	// must be destroyed. Sorted.
	Gone []netip.AddrPort
	// New lists frontends that are served since the last call, or by another object than before.
	// Connections to them may be older, and then they are not translated. Sorted.
	New []verdict.ServiceKey
}

// previousState holds, for all entries that were touched since the last Changes, their state at
// that call. Its methods note… must be called before an edit of Tables. They ignore entries that
// are noted already.
type previousState struct {
	frontends map[verdict.ServiceKey]frontendState
	sockets   map[Key]bpf.SockService
	vips      map[netip.Addr]bool
	udp       map[netip.AddrPort]bool
}

// frontendState is all that a node's tables have about a frontend, except for the host's sockets.
type frontendState struct {
	holder   model.Owner // zero if no object holds the frontend
	owner    verdict.ServiceOwner
	local    netip.AddrPort  // the host socket behind verdict.ServiceHost
	redirect Redirect        // shared with a plan, never modified
	port     bpf.ServicePort // zero for host ports
}

func newPreviousState() previousState {
	return previousState{
		frontends: map[verdict.ServiceKey]frontendState{},
		sockets:   map[Key]bpf.SockService{},
		vips:      map[netip.Addr]bool{},
		udp:       map[netip.AddrPort]bool{},
	}
}

// noteFrontend notes the state of a frontend.
func (b previousState) noteFrontend(t *Tables, k verdict.ServiceKey) {
	if _, ok := b.frontends[k]; !ok {
		b.frontends[k] = t.frontendState(k)
	}
}

// noteSockets notes the host's sockets of an object.
func (b previousState) noteSockets(t *Tables, k Key) {
	if _, ok := b.sockets[k]; !ok {
		b.sockets[k] = t.sockets(k)
	}
}

// noteAddresses notes which VIPs and UDP endpoints of a plan any plan has.
func (b previousState) noteAddresses(t *Tables, p Plan) {
	for _, a := range p.VIPs {
		if _, ok := b.vips[a]; !ok {
			b.vips[a] = t.vips[a] > 0
		}
	}

	for _, a := range p.UDP {
		if _, ok := b.udp[a]; !ok {
			b.udp[a] = t.udp[a] > 0
		}
	}
}

// Changes returns what has changed since the last call.
func (t *Tables) Changes() Changes {
	before := t.before
	t.before = newPreviousState()

	c := Changes{
		Set:     map[verdict.ServiceKey]verdict.ServiceOwner{},
		Counts:  map[verdict.ServiceKey]bpf.ServicePort{},
		Lookups: map[verdict.ServiceKey]netip.AddrPort{},
	}

	for k, old := range before.frontends {
		c.addFrontend(k, old, t.frontendState(k))
	}

	for k, old := range before.sockets {
		if now := t.sockets(k); !slices.EqualFunc(old.Ports, now.Ports, equalPorts) {
			c.Sockets = append(c.Sockets, now)
		}
	}

	for a, existed := range before.vips {
		c.VIPs = c.VIPs || existed != (t.vips[a] > 0)
	}

	for a, answered := range before.udp {
		if answered && t.udp[a] == 0 {
			c.Gone = append(c.Gone, a)
		}
	}

	slices.SortFunc(c.Unset, compareKeys)
	slices.SortFunc(c.Unlookups, compareKeys)
	sortSockets(c.Sockets)
	slices.SortFunc(c.Gone, netip.AddrPort.Compare)
	slices.SortFunc(c.New, compareKeys)

	return c
}

// addFrontend adds the differences between two states of a frontend.
func (c *Changes) addFrontend(k verdict.ServiceKey, old, now frontendState) {
	c.Redirects = c.Redirects || !old.redirect.Equal(now.redirect)

	if now.port != old.port {
		c.Counts[k] = now.port
	}

	isHeld := now.holder.Key != (Key{})
	if isHeld && (now.holder.Key != old.holder.Key || !now.holder.Created.Equal(old.holder.Created)) {
		c.New = append(c.New, k)
	}

	switch now.owner {
	case old.owner:
	case 0:
		c.Unset = append(c.Unset, k)
	default:
		c.Set[k] = now.owner
	}

	switch {
	case now.local == old.local:
	case !now.local.IsValid():
		c.Unlookups = append(c.Unlookups, k)
	default:
		c.Lookups[k] = now.local
	}
}

// sortSockets sorts by key.
func sortSockets(s []bpf.SockService) {
	slices.SortFunc(s, func(a, b bpf.SockService) int { return strings.Compare(a.Key, b.Key) })
}

// equalPorts reports whether two ports of a Service are the same for the host's sockets.
func equalPorts(a, b bpf.SockPort) bool {
	return a.Proto == b.Proto && a.Affinity == b.Affinity && a.NotLoopback == b.NotLoopback &&
		slices.Equal(a.Frontends, b.Frontends) && slices.Equal(a.Backends, b.Backends)
}

// frontendState returns the current state of a frontend, or the zero value if it has none.
func (t *Tables) frontendState(k verdict.ServiceKey) frontendState {
	h := t.holders[k]
	if h == nil {
		return frontendState{}
	}

	f, _ := h.plan.frontend(k)
	s := frontendState{holder: h.owner(), owner: f.Owner}

	if f.Owner != 0 {
		g := h.plan.Groups[f.Group]
		s.redirect = Redirect{g.Redirect, g.From}

		if f.Port != 0 {
			s.port = bpf.ServicePort{
				Namespace: h.key.Namespace,
				Name:      h.key.Name,
				Proto:     k.Proto,
				Port:      f.Port,
			}
		}
	}

	if f.Owner == verdict.ServiceHost {
		s.local = h.plan.Groups[f.Group].Local
	}

	return s
}

// sockets returns the part of k's plan for the host's sockets, restricted to the frontends that k
// holds. Without such frontends it has no ports.
func (t *Tables) sockets(k Key) bpf.SockService {
	out := bpf.SockService{Key: k.String()}

	c := t.claimants[k]
	if c == nil {
		return out
	}

	fronts := make([][]netip.AddrPort, len(c.plan.Groups))
	for _, f := range c.plan.Frontends {
		if f.Socket && t.holders[f.Key] == c {
			fronts[f.Group] = append(fronts[f.Group], netip.AddrPortFrom(f.Key.Addr, f.Key.Port))
		}
	}

	for i, g := range c.plan.Groups {
		if len(fronts[i]) > 0 {
			out.Ports = append(out.Ports, bpf.SockPort{
				Frontends:   fronts[i],
				Proto:       g.Proto,
				Backends:    g.Backends,
				Affinity:    g.Affinity,
				NotLoopback: g.NotLoopback,
			})
		}
	}

	return out
}

// SocketFrontends returns the addresses at which UDP sockets of the host reach the given frontends.
// own are the host's addresses. Sorted.
func (t *Tables) SocketFrontends(keys []verdict.ServiceKey, own []netip.Addr) []netip.AddrPort {
	var out []netip.AddrPort

	for _, k := range keys {
		h := t.holders[k]
		if h == nil || k.Proto != model.NumberUDP {
			continue
		}

		f, _ := h.plan.frontend(k)
		if !f.Socket {
			continue
		}

		for _, a := range f.addresses(own, h.plan.Groups[f.Group].NotLoopback) {
			out = append(out, netip.AddrPortFrom(a, k.Port))
		}
	}

	slices.SortFunc(out, netip.AddrPort.Compare)

	return slices.Compact(out)
}

// tableOf returns a whole table: the values of all frontends for which value returns true. The
// methods below return the tables to start with, and Changes the differences from then on.
func tableOf[V any](t *Tables, value func(frontendState) (V, bool)) map[verdict.ServiceKey]V {
	out := make(map[verdict.ServiceKey]V, len(t.holders))

	for k := range t.holders {
		if v, has := value(t.frontendState(k)); has {
			out[k] = v
		}
	}

	return out
}

// Frontends returns the gateway's whole table.
func (t *Tables) Frontends() map[verdict.ServiceKey]verdict.ServiceOwner {
	return tableOf(t, func(s frontendState) (verdict.ServiceOwner, bool) { return s.owner, s.owner != 0 })
}

// Counts returns, for each frontend of the gateway, the Service port that counts its packets.
func (t *Tables) Counts() map[verdict.ServiceKey]bpf.ServicePort {
	return tableOf(t, func(s frontendState) (bpf.ServicePort, bool) { return s.port, s.port != (bpf.ServicePort{}) })
}

// Lookups returns the host sockets behind all frontends of verdict.ServiceHost.
func (t *Tables) Lookups() map[verdict.ServiceKey]netip.AddrPort {
	return tableOf(t, func(s frontendState) (netip.AddrPort, bool) { return s.local, s.local.IsValid() })
}

// Redirects returns the destinations to which the host redirects traffic at frontends in local
// gateway mode. Each connection goes to one of them.
func (t *Tables) Redirects() map[verdict.ServiceKey]Redirect {
	return tableOf(t, func(s frontendState) (Redirect, bool) { return s.redirect, len(s.redirect.To) > 0 })
}

// Sockets returns all Services for the host's sockets, sorted by key.
func (t *Tables) Sockets() []bpf.SockService {
	var out []bpf.SockService

	for k := range t.claimants {
		if s := t.sockets(k); len(s.Ports) > 0 {
			out = append(out, s)
		}
	}

	sortSockets(out)

	return out
}

// VIPs returns the external and load balancer addresses of all Services that the gateway serves,
// sorted.
func (t *Tables) VIPs() []netip.Addr { return slices.SortedFunc(maps.Keys(t.vips), netip.Addr.Compare) }

// Answers reports whether a UDP endpoint still answers. Sockets connected to it should stay.
func (t *Tables) Answers(udp netip.AddrPort) bool { return t.udp[udp] > 0 }
