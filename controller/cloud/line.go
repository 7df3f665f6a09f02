package cloud

import (
	"cmp"
	"net/netip"
	"slices"
)

// Gateway is the router's address in a pool's subnet, with the subnet's prefix length.
type Gateway struct {
	Address netip.Prefix
	MAC     string
}

// Record is what a node is told of its pool.
type Record struct {
	VIF, Trunk, Network string // IDs; "" as long as there is none
	MTU                 int    // bytes
	Gateways            []Gateway
	Lines               []Line // by tag
}

// Record returns what the node may use now: ports that are in its trunk by the right tag. Published
// ports that disappeared or changed are marked held.
func (p Pool) Record(s Seen) Record {
	vif, trouble := p.findVIF(s)
	if trouble != nil {
		return Record{Lines: held(s.Published, nil)}
	}
	st := inspect(p.Cluster, p.Node, p.Length, s)
	r := Record{VIF: vif.ID, Network: st.network.ID, MTU: st.network.MTU}
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
func (p Pool) gateways(network Network, s Seen) []Gateway {
	bits := map[string]int{}
	for _, n := range s.Subnets {
		bits[n.ID] = n.Prefix.Bits()
	}

	var out []Gateway
	for _, port := range s.Ports {
		if port.Network != network.ID || !port.isRouter() || port.Device != p.Router {
			continue
		}

		for _, f := range port.Fixed {
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
		for _, f := range sl.port.Fixed {
			l.Addresses = append(l.Addresses, f.Address)
		}
		slices.SortFunc(l.Addresses, netip.Addr.Compare) // IPv4 before IPv6
		out = append(out, l)
	}
	return out
}

// held returns the lines of now, and those published before whose port is not the same any more. A
// line of now has precedence over a lost one with its tag.
func held(published, now []Line) []Line {
	out := slices.Clone(now)
	for i := range out {
		for _, l := range published {
			if l.Port == out[i].Port && !sameLine(l, out[i]) {
				out[i] = l
				out[i].Held = true
			}
		}
	}
	for _, l := range published {
		if !slices.ContainsFunc(out, func(o Line) bool { return o.Port == l.Port || o.Tag == l.Tag }) {
			l.Held = true
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b Line) int { return cmp.Or(a.Tag-b.Tag, cmp.Compare(a.Port, b.Port)) })
	return out
}

// sameLine reports whether the port is as it was published. Its groups may change.
func sameLine(a, b Line) bool {
	return a.MAC == b.MAC && a.Tag == b.Tag && slices.Equal(a.Addresses, b.Addresses)
}

// Equal reports whether a node is told the same by both.
func (r Record) Equal(o Record) bool {
	return r.VIF == o.VIF && r.Trunk == o.Trunk && r.Network == o.Network && r.MTU == o.MTU &&
		slices.Equal(r.Gateways, o.Gateways) && slices.EqualFunc(r.Lines, o.Lines, func(a, b Line) bool {
		return a.Port == b.Port && a.Held == b.Held && sameLine(a, b) && slices.Equal(a.Groups, b.Groups)
	})
}

// Free returns how many of the ports can be taken if pods use so many.
func (r Record) Free(pods int) int {
	n := -pods
	for _, l := range r.Lines {
		if !l.Held {
			n++
		}
	}
	return n
}
