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

// Record is the description of a node's pool that is published to the node's agent, as a ConfigMap
// (package underlay). Pods get ports from its Lines.
type Record struct {
	VIF, Trunk, Network string // IDs; "" if it does not exist
	MTU                 int    // bytes
	Gateways            []Gateway
	Groups              []string // UUIDs of a new port's security groups, sorted
	Lines               []Line   // by tag
}

// Line is a port of a pool as it is published to the node. Its tag identifies it: a repaired port
// has the tag, MAC and addresses of the one before, and another UUID.
type Line struct {
	Port, MAC string       // UUID, and MAC in lower case
	Tag       int          // VLAN tag in the node's trunk
	Addresses []netip.Addr // one, or two with IPv4 first
	Groups    []string     // sorted; nil: unknown, []string{}: none
	// Held ports are gone from Neutron, or are not what was published: no pod may take one.
	Held bool
}

// Record returns the description of the pool for the node. It has the ports that are in the
// node's trunk with the right tag. Published ports that disappeared or changed are marked held.
func (p Pool) Record(s Observation) Record {
	groups := slices.Sorted(slices.Values(p.Groups))

	vif, trouble := p.findVIF(s)
	if trouble != nil {
		return Record{Groups: groups, Lines: withHeld(s.Published, nil)}
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
	r.Lines = withHeld(s.Published, lines(st, trunk))

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

// lines returns the lines of the ports that are in the trunk with the right tag.
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

// withHeld returns the present lines, and held lines for published ones that are no longer
// present. If a tag is now present with another MAC or other addresses, the held line replaces
// the present one.
//
// Two kinds of published lines are dropped. If the tag now has an address of another subnet, the
// subnet was replaced. If another tag now has the port or one of its addresses, the port has
// moved.
func withHeld(published, present []Line) []Line {
	out := slices.Clone(present)
	for _, l := range published {
		at := slices.IndexFunc(out, func(o Line) bool { return o.Tag == l.Tag })
		if at >= 0 && (l.sameIdentity(out[at]) || l.Addresses[0] != out[at].Addresses[0]) {
			continue // present, or of a subnet that was replaced
		}

		if slices.ContainsFunc(out, func(o Line) bool { return o.Tag != l.Tag && l.overlaps(o) }) {
			continue // moved to another tag
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

// sameIdentity reports whether a pod with the port of one line can keep it as the port of the
// other. The UUIDs may differ, because a repaired port has another one.
func (l Line) sameIdentity(o Line) bool {
	return l.Tag == o.Tag && l.MAC == o.MAC && slices.Equal(l.Addresses, o.Addresses)
}

// overlaps reports whether two lines have the same port, or an address in common.
func (l Line) overlaps(o Line) bool {
	return l.Port == o.Port ||
		slices.ContainsFunc(l.Addresses, func(a netip.Addr) bool { return slices.Contains(o.Addresses, a) })
}

// Repairs returns a problem with the addresses of held ports, or nil if no port is held.
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
		"because another program changed them: %s", node, enumerate(addresses, maxListed))
}

// Equal reports whether both records have the same published form.
func (r Record) Equal(o Record) bool {
	return r.VIF == o.VIF && r.Trunk == o.Trunk && r.Network == o.Network && r.MTU == o.MTU &&
		slices.Equal(r.Gateways, o.Gateways) && slices.Equal(r.Groups, o.Groups) &&
		slices.EqualFunc(r.Lines, o.Lines, Line.equal)
}

// equal reports whether the lines have the same published form.
func (l Line) equal(o Line) bool {
	return l.Port == o.Port && l.Held == o.Held && l.sameIdentity(o) &&
		slices.Equal(l.Groups, o.Groups) && (l.Groups == nil) == (o.Groups == nil)
}

// Free returns the number of ports that pods can take, if that many pods use ports. It may be
// negative.
func (r Record) Free(pods int) int {
	return count(r.Lines, func(l Line) bool { return !l.Held }) - pods
}
