package cloud

import (
	"net/netip"
	"slices"
)

// Gateway is the router's address in a pool's subnet, with the subnet's prefix length.
type Gateway struct {
	Address netip.Prefix
	MAC     string
}

// Record is the published description of a node's pool.
type Record struct {
	VIF, Trunk, Network string // IDs; "" as long as there is none
	MTU                 int    // bytes
	Gateways            []Gateway
	Groups              []string // UUIDs of a new port's security groups, sorted
	Lines               []Line   // by tag
}

// Record returns what the node may use now: ports that are in its trunk by the right tag. Published
// ports that disappeared or changed are marked held.
func (p Pool) Record(s Observation) Record {
	groups := slices.Sorted(slices.Values(p.Groups))

	vif, trouble := p.findVIF(s)
	if trouble != nil {
		return Record{Groups: groups, Lines: held(s.Published, nil)}
	}

	st := inspect(p.Cluster, p.Node, p.Length, s)
	r := Record{VIF: vif.ID, Network: st.network.ID, MTU: st.network.MTU, Groups: groups}

	var trunk Trunk

	for _, t := range s.Trunks {
		if t.Port == vif.ID {
			trunk = t
		}
	}

	r.Trunk = trunk.ID
	r.Gateways = p.gateways(st.network, s)
	r.Lines = held(s.Published, lines(st, trunk))

	return r
}

// gateways returns the addresses of the pool's router in the network, sorted.
func (p Pool) gateways(network Network, s Observation) []Gateway {
	bits := map[string]int{}
	for _, n := range s.Subnets {
		bits[n.ID] = n.Prefix.Bits()
	}

	var out []Gateway

	for _, port := range s.Ports {
		if port.Network != network.ID || !port.isRouter() || port.Device != p.Router {
			continue
		}

		for _, f := range port.FixedIPs {
			if n, ok := bits[f.Subnet]; ok {
				out = append(out, Gateway{netip.PrefixFrom(f.Address, n), port.MAC})
			}
		}
	}

	slices.SortFunc(out, func(a, b Gateway) int { return a.Address.Compare(b.Address) })

	return out
}

func lines(st state, trunk Trunk) []Line {
	tags := trunk.tags()

	var out []Line

	for _, sl := range st.slots {
		if sl.port.ID == "" || tags[sl.port.ID] != sl.tag {
			continue
		}

		l := Line{Port: sl.port.ID, MAC: sl.port.MAC, Tag: sl.tag, Groups: sl.port.Groups}
		for _, f := range sl.port.FixedIPs {
			l.Addresses = append(l.Addresses, f.Address)
		}

		slices.SortFunc(l.Addresses, netip.Addr.Compare) // IPv4 before IPv6
		out = append(out, l)
	}

	return out
}

// held returns the lines of now. A line whose tag was published with another MAC or other addresses
// stays as it was published, but held. A published line whose tag is lost is held, too.
//
// Two kinds of published lines are dropped. If the tag has an address of another subnet now, the
// subnet was made anew. If another tag has the port or one of its addresses now, the port has
// moved.
func held(published, now []Line) []Line {
	out := slices.Clone(now)
	for _, l := range published {
		at := slices.IndexFunc(out, func(o Line) bool { return o.Tag == l.Tag })
		if at >= 0 && (l.sameIdentity(out[at]) || l.Addresses[0] != out[at].Addresses[0]) {
			continue
		}

		if slices.ContainsFunc(out, func(o Line) bool { return o.Tag != l.Tag && l.overlaps(o) }) {
			continue
		}

		l.Held = true
		if at >= 0 {
			out[at] = l
		} else {
			out = append(out, l)
		}
	}

	slices.SortFunc(out, func(a, b Line) int { return a.Tag - b.Tag })

	return out
}

// sameIdentity reports whether two lines are the same port, or one is the repaired other.
func (l Line) sameIdentity(o Line) bool {
	return l.Tag == o.Tag && l.MAC == o.MAC && slices.Equal(l.Addresses, o.Addresses)
}

// overlaps reports whether two lines have the same port, or an address in common.
func (l Line) overlaps(o Line) bool {
	return l.Port == o.Port ||
		slices.ContainsFunc(l.Addresses, func(a netip.Addr) bool { return slices.Contains(o.Addresses, a) })
}

// Repairs returns the problem that published ports are held, with their addresses, or nil.
func (r Record) Repairs(node string) *Problem {
	var addresses []string

	for _, l := range r.Lines {
		if l.Held && len(l.Addresses) > 0 {
			addresses = append(addresses, l.Addresses[0].String())
		}
	}

	if len(addresses) == 0 {
		return nil
	}

	return problem(PortsRepaired, "repair pool of node %s: ports are not as they were made, perhaps "+
		"because another program changed them: %s", node, enumerate(addresses, mostTaken))
}

// Equal reports whether both records are published alike.
func (r Record) Equal(o Record) bool {
	return r.VIF == o.VIF && r.Trunk == o.Trunk && r.Network == o.Network && r.MTU == o.MTU &&
		slices.Equal(r.Gateways, o.Gateways) && slices.Equal(r.Groups, o.Groups) &&
		slices.EqualFunc(r.Lines, o.Lines, Line.equal)
}

func (l Line) equal(o Line) bool {
	return l.Port == o.Port && l.Held == o.Held && l.sameIdentity(o) &&
		slices.Equal(l.Groups, o.Groups) && (l.Groups == nil) == (o.Groups == nil)
}

// Free returns how many of the ports can be taken if pods use so many.
func (r Record) Free(pods int) int {
	return count(r.Lines, func(l Line) bool { return !l.Held }) - pods
}
