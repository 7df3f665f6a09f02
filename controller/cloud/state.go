package cloud

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// state has the observed objects of one pool, by their purpose. A pool consists of slots:
//
//	first subnet, a /26                        second subnet
//	network  router  61 slots      broadcast   network  router  slots
//	tag 0    tag 1   tags 2 to 62  tag 63      tag 64   tag 65  from tag 66
//
// A slot has a VLAN tag, the IPv4 address at the same place in the IPv4 subnets, one after another,
// and the IPv6 address with the tag as its offset in the IPv6 subnet. So the tag and the addresses
// of a port follow from each other, and nothing needs to be recorded.
type state struct {
	name    string    // of the pool
	network Network   // ID "" if there is none
	copies  []Network // other networks of the pool, which a repeated request has made
	subnets []Subnet  // IPv4, by index; ID "" where one is missing
	subnet6 Subnet    // IPv6; ID "" if there is none
	surplus []Subnet  // with the same name as one of subnets, or as subnet6
	slots   []slot
	strays  []Port // the pool's by name, but with another address or MAC than published
}

// firstSlot is the offset of the first slot in a subnet, after the network address and the
// router's.
const firstSlot = 2

// slot is the place of a port in the pool: a VLAN tag, and the addresses that belong to it.
type slot struct {
	tag     int
	fixed   []FixedIP
	port    Port   // ID "" if there is none
	blocked bool   // a port that cannot be the slot's has the address
	blocker string // ID of that port if it is neither the pool's nor Neutron's own
}

// inspect finds the purpose of the observed objects in the pool of a node. length is the prefix
// length of missing subnets.
func inspect(cluster, node string, length int, s Observation) state {
	st := state{name: poolName(cluster, node)}
	st.findNetwork(description(cluster, node), s)

	if st.network.ID == "" {
		return st
	}

	st.findSubnets(s)
	st.findPorts(length, s)

	return st
}

// findNetwork finds the networks of the pool by name and description. It chooses the one with most
// ports, and the others are copies.
func (st *state) findNetwork(description string, s Observation) {
	own := only(s.Networks, func(n Network) bool { return n.Name == st.name && n.Description == description })
	if len(own) == 0 {
		return
	}

	slices.SortFunc(own, func(a, b Network) int {
		return cmp.Or(cmp.Compare(portsOf(s, b.ID), portsOf(s, a.ID)), strings.Compare(a.ID, b.ID))
	})
	st.network, st.copies = own[0], own[1:]
}

// portsOf returns the number of ports in a network.
func portsOf(s Observation, network string) int {
	return count(s.Ports, func(p Port) bool { return p.Network == network })
}

// findSubnets finds the subnets by their names. If several have the same name, it chooses the one
// with most ports.
func (st *state) findSubnets(s Observation) {
	all := only(s.Subnets, func(n Subnet) bool { return n.Network == st.network.ID })

	slices.SortFunc(all, func(a, b Subnet) int {
		return cmp.Or(cmp.Compare(portsIn(s, b.ID), portsIn(s, a.ID)), strings.Compare(a.ID, b.ID))
	})

	for _, n := range all {
		index, ok := subnetIndex(st.name, n.Name)
		switch {
		case n.Name == subnet6Name(st.name):
			if st.subnet6.ID == "" {
				st.subnet6 = n
			} else {
				st.surplus = append(st.surplus, n)
			}
		case !ok || !n.Prefix.Addr().Is4(): // not the pool's
		case index < len(st.subnets) && st.subnets[index].ID != "":
			st.surplus = append(st.surplus, n)
		default:
			for len(st.subnets) <= index {
				st.subnets = append(st.subnets, Subnet{})
			}

			st.subnets[index] = n
		}
	}
}

// portsIn returns the number of ports in a subnet.
func portsIn(s Observation, subnet string) int {
	return count(s.Ports, func(p Port) bool { return p.in(subnet) })
}

// maxSubnets bounds the index in a subnet's name: a trunk has no tags for more subnets.
const maxSubnets = (lastTag + 1) >> (32 - LongestPrefix)

// Names of the subnets of a pool. index counts its IPv4 subnets from 0.
func subnetName(pool string, index int) string { return pool + "-" + strconv.Itoa(index) }
func subnet6Name(pool string) string           { return pool + "-v6" }

// subnetIndex returns the index in the name of an IPv4 subnet of the pool, or false for another
// subnet.
func subnetIndex(pool, name string) (int, bool) {
	text, ok := strings.CutPrefix(name, pool+"-")
	index, err := strconv.Atoi(text)

	return index, ok && err == nil && index >= 0 && index <= maxSubnets && text == strconv.Itoa(index)
}

// findPorts makes the slots of all subnets and assigns the pool's ports to them. The slots of a
// missing subnet are left out, but their tags stay free for it.
func (st *state) findPorts(length int, s Observation) {
	byAddress := map[netip.Addr]Port{}

	for _, p := range s.Ports {
		if p.Network != st.network.ID {
			continue
		}

		if a, ok := st.owned(p); ok && (!p.has(a) || changedMAC(s.Published, a, p)) {
			st.strays = append(st.strays, p)
		}

		for _, f := range p.FixedIPs {
			byAddress[f.Address] = p
		}
	}

	base := 0 // the tag of the subnet's network address

	for _, n := range st.subnets {
		if n.ID == "" {
			base += 1 << (32 - length)
			continue
		}

		last := min(base+firstSlot+capacity(n.Prefix.Bits())-1, lastTag)
		for tag := base + firstSlot; tag <= last; tag++ {
			sl := slot{tag: tag, fixed: []FixedIP{{n.ID, nthAddress(n.Prefix, tag-base)}}}
			if st.subnet6.ID != "" {
				sl.fixed = append(sl.fixed, FixedIP{st.subnet6.ID, nthAddress(st.subnet6.Prefix, tag)})
			}

			if p, ok := byAddress[sl.fixed[0].Address]; ok {
				st.assign(&sl, p, s.Published)
			}

			st.slots = append(st.slots, sl)
		}

		base += 1 << (32 - n.Prefix.Bits())
	}
}

// assign gives the slot the port that has its address, if the pool made the port for this slot.
// Otherwise the port blocks the slot.
func (st *state) assign(sl *slot, p Port, published []Line) {
	a, isOwned := st.owned(p)
	switch {
	case !isOwned:
		sl.blocked = true
		if !p.isService() {
			sl.blocker = p.ID
		}
	case a != sl.fixed[0].Address || changedMAC(published, a, p):
		sl.blocked = true
	default:
		sl.port = p
	}
}

// owned reports whether the pool has made the port, and returns the address in the port's name. The
// port may have another address, if another program has changed it.
func (st *state) owned(p Port) (netip.Addr, bool) {
	text, ok := strings.CutPrefix(p.Name, st.name+"-")
	if !ok || p.isRouter() || p.isService() {
		return netip.Addr{}, false
	}

	a, err := netip.ParseAddr(text)

	return a, err == nil
}

// changedMAC reports whether another MAC was published for the port's address. The port may have
// another UUID than the published one.
func changedMAC(published []Line, a netip.Addr, p Port) bool {
	l, ok := publishedFor(published, a)
	return ok && l.MAC != p.MAC
}

// publishedFor returns the line that was published for the IPv4 address of a slot.
func publishedFor(published []Line, a netip.Addr) (Line, bool) {
	i := slices.IndexFunc(published, func(l Line) bool { return l.Addresses[0] == a })
	if i < 0 {
		return Line{}, false
	}

	return published[i], true
}

// nthAddress returns the prefix's n-th address, from 0.
func nthAddress(p netip.Prefix, n int) netip.Addr {
	if p.Addr().Is4() {
		a := p.Masked().Addr().As4()
		binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))

		return netip.AddrFrom4(a)
	}

	a := p.Masked().Addr().As16()
	binary.BigEndian.PutUint32(a[12:], binary.BigEndian.Uint32(a[12:])+uint32(n))

	return netip.AddrFrom16(a)
}

// tags returns the tag of each port that is in the trunk.
func (t Trunk) tags() map[string]int {
	m := make(map[string]int, len(t.Subports))
	for _, p := range t.Subports {
		m[p.Port] = p.Tag
	}

	return m
}
