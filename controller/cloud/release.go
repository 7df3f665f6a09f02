package cloud

import (
	"slices"
	"strings"
)

// Release returns all steps that remove the pool of a node that has left, in order: ports from
// trunks, trunks, ports, router interfaces, networks with their subnets. A trunk that the pool did
// not make stays, and so does a network that has other ports.
func Release(c Config, node string, s Observation) Plan {
	b := builder{seen: s}
	st := state{name: poolName(c.Cluster, node)} // owned needs no more than the name
	mark := description(c.Cluster, node)

	for _, t := range s.Trunks {
		b.releaseTrunk(&st, t, mark)
	}

	for _, n := range s.Networks {
		if n.Name == st.name && n.Description == mark {
			b.releasePorts(&st, n)
			b.releaseNetwork(n, c.Router)
		}
	}

	return b.Plan
}

// releasePorts plans the deletion of the pool's ports in a network.
func (b *builder) releasePorts(st *state, n Network) {
	for _, p := range b.seen.Ports {
		if _, isOwned := st.owned(p); isOwned && p.Network == n.ID {
			b.add(DeletePort{p.ID})
		}
	}
}

// releaseNetwork plans the deletion of a network of a pool, after releasePorts. If other ports are
// in it, it reports them and keeps the network.
func (b *builder) releaseNetwork(n Network, router string) {
	st := state{name: n.Name} // a network has the name of its pool

	var others []string

	for _, p := range b.seen.Ports {
		_, isOwned := st.owned(p)
		isInterface := p.isRouter() && p.Device == router

		if p.Network == n.ID && !isOwned && !isInterface && !p.isService() {
			others = append(others, p.ID)
		}
	}

	if len(others) > 0 {
		b.report(problem(ForeignPorts, "delete network %s: ports that are not the pool's: %s",
			n.ID, strings.Join(others, ", ")))

		return
	}

	for _, subnet := range b.seen.Subnets {
		if subnet.Network == n.ID && b.hasInterface(subnet, router) {
			b.add(RemoveInterface{router, subnet.ID})
		}
	}

	b.add(DeleteNetwork{n.ID})
}

// inNetwork reports whether the port, given by its ID, is in the network.
func (b *builder) inNetwork(port string, n Network) bool {
	return slices.ContainsFunc(b.seen.Ports, func(p Port) bool { return p.ID == port && p.Network == n.ID })
}
