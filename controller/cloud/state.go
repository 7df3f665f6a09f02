package cloud

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// state is what was observed of one pool, sorted by what it is for.
type state struct {
	name    string
	network Network   // ID "" if there is none
	copies  []Network // the pool's too: what a request made that was sent twice
	subnets []Subnet  // IPv4, by index; ID "" where one is missing
	six     Subnet    // IPv6; ID "" if there is none
	surplus []Subnet  // with the name of one of subnets
	slots   []slot
	strays  []Port // the pool's by name, with another address
}

// slot is a place in the pool: a tag and the addresses that go with it.
type slot struct {
	tag     int
	fixed   []FixedIP
	port    Port   // ID "" if there is none
	blocked bool   // another port has the address
	blocker string // ID of that port if it is neither the pool's nor Neutron's own
}

// inspect sorts what was seen of a cluster's pool for a node. length is that of missing subnets.
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

// findNetwork chooses the network with most ports; others are copies.
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

func portsOf(s Observation, network string) int {
	return count(s.Ports, func(p Port) bool { return p.Network == network })
}

// findSubnets takes the subnets by their names. Of equal names the one in use is the pool's.
func (st *state) findSubnets(s Observation) {
	all := only(s.Subnets, func(n Subnet) bool { return n.Network == st.network.ID })

	slices.SortFunc(all, func(a, b Subnet) int {
		return cmp.Or(cmp.Compare(portsIn(s, b.ID), portsIn(s, a.ID)), strings.Compare(a.ID, b.ID))
	})

	for _, n := range all {
		index, ok := subnetIndex(st.name, n.Name)
		switch {
		case n.Name == subnet6Name(st.name):
			if st.six.ID == "" {
				st.six = n
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

func portsIn(s Observation, subnet string) int {
	return count(s.Ports, func(p Port) bool { return p.in(subnet) })
}

// mostSubnets bounds the index in a subnet's name: a trunk has no tags for more.
const mostSubnets = (lastTag + 1) >> (32 - LongestPrefix)

func subnetName(pool string, index int) string { return pool + "-" + strconv.Itoa(index) }
func subnet6Name(pool string) string           { return pool + "-v6" }

func subnetIndex(pool, name string) (int, bool) {
	text, ok := strings.CutPrefix(name, pool+"-")
	index, err := strconv.Atoi(text)

	return index, ok && err == nil && index >= 0 && index <= mostSubnets && text == strconv.Itoa(index)
}

// findPorts makes the slots of all subnets and puts the pool's ports into them.
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

	base := 0

	for _, n := range st.subnets {
		if n.ID == "" {
			base += 1 << (32 - length)
			continue
		}

		for tag := base + 2; tag <= base+capacity(n.Prefix.Bits())+1 && tag <= lastTag; tag++ {
			sl := slot{tag: tag, fixed: []FixedIP{{n.ID, host(n.Prefix, tag-base)}}}
			if st.six.ID != "" {
				sl.fixed = append(sl.fixed, FixedIP{st.six.ID, host(st.six.Prefix, tag)})
			}

			if p, ok := byAddress[sl.fixed[0].Address]; ok {
				a, owned := st.owned(p)
				switch {
				case !owned:
					sl.blocked = true
					if !p.isService() {
						sl.blocker = p.ID
					}
				case a != sl.fixed[0].Address || changedMAC(s.Published, a, p):
					sl.blocked = true
				default:
					sl.port = p
				}
			}

			st.slots = append(st.slots, sl)
		}

		base += 1 << (32 - n.Prefix.Bits())
	}
}

// owned returns the address in the name of a port of the pool.
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

// host returns the prefix's n-th address.
func host(p netip.Prefix, n int) netip.Addr {
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
