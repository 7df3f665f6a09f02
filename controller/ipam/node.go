package ipam

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Subnet is a range of pod addresses and the prefix length of each node's part of it.
type Subnet struct {
	Prefix  netip.Prefix
	HostLen int
}

// Nodes allocates node ids, from 1, and one pod subnet per family to each node. Its methods must
// not be called concurrently.
type Nodes struct {
	subnets []Subnet
	maxID   int
	ids     map[int]string            // id → node
	byName  map[string]int            // node → id
	parts   map[netip.Prefix]string   // subnet of a node, masked → node
	held    map[string][]netip.Prefix // node → its subnets, masked
}

// NewNodes returns Nodes without allocations. The largest id is maxID.
func NewNodes(subnets []Subnet, maxID int) *Nodes {
	return &Nodes{
		subnets: subnets, maxID: maxID, ids: map[int]string{}, byName: map[string]int{},
		parts: map[netip.Prefix]string{}, held: map[string][]netip.Prefix{},
	}
}

// HoldID allocates the id to the node, in place of its former one. It returns ErrTaken (wrapped) if
// another node has it.
func (n *Nodes) HoldID(node string, id int) error {
	if owner, ok := n.ids[id]; ok && owner != node {
		return fmt.Errorf("hold node id %d for %q: %w by %q", id, node, ErrTaken, owner)
	}

	if old, ok := n.byName[node]; ok {
		delete(n.ids, old)
	}

	n.ids[id], n.byName[node] = node, id

	return nil
}

// HasID reports whether the node has an id.
func (n *Nodes) HasID(node string) bool {
	_, ok := n.byName[node]
	return ok
}

// ID returns the node's id, and allocates the lowest free one if it has none.
func (n *Nodes) ID(node string) (int, error) {
	if id, ok := n.byName[node]; ok {
		return id, nil
	}

	for id := 1; id <= n.maxID; id++ {
		if _, ok := n.ids[id]; !ok {
			return id, n.HoldID(node, id)
		}
	}

	return 0, fmt.Errorf("allocate node id for %q: all %d are in use: %w", node, n.maxID, ErrExhausted)
}

// HoldSubnets allocates the subnets to the node, in place of its former ones. If one of them
// overlaps another node's, it returns ErrTaken (wrapped) and changes nothing.
func (n *Nodes) HoldSubnets(node string, subnets []netip.Prefix) error {
	for _, s := range subnets {
		if owner := n.overlap(s.Masked(), node); owner != "" {
			return fmt.Errorf("hold subnet %s for node %q: %w by %q", s, node, ErrTaken, owner)
		}
	}

	n.ReleaseSubnets(node)

	for _, s := range subnets {
		if slices.Contains(n.held[node], s.Masked()) {
			continue
		}

		n.parts[s.Masked()] = node
		n.held[node] = append(n.held[node], s.Masked())
	}

	return nil
}

// overlap returns the node, other than except, that has a subnet which overlaps s, or "".
func (n *Nodes) overlap(s netip.Prefix, except string) string {
	// Most subnets have the same length, so look for the same subnet first.
	if owner, ok := n.parts[s]; ok && owner != except {
		return owner
	}

	for part, owner := range n.parts {
		if owner != except && part.Overlaps(s) {
			return owner
		}
	}

	return ""
}

// Held returns the node's subnets, masked, nil if it has none.
func (n *Nodes) Held(node string) []netip.Prefix { return n.held[node] }

// CheckInside returns ErrInvalid (wrapped) if the node has a subnet outside of the cluster's
// subnets. Subnets of a family that the cluster lacks are ignored.
func (n *Nodes) CheckInside(node string) error {
	for _, h := range n.held[node] {
		contains := func(s Subnet) bool { return s.Prefix.Bits() <= h.Bits() && s.Prefix.Contains(h.Addr()) }
		if slices.Contains(n.families(), h.Addr().Is4()) && !slices.ContainsFunc(n.subnets, contains) {
			return fmt.Errorf("%w: subnet %s of node %q is outside of the cluster's subnets",
				ErrInvalid, h, node)
		}
	}

	return nil
}

// Capacity returns, by cluster subnet, how many nodes' subnets it has room for and how many of
// them are in use. Nodes' subnets of another length than HostLen count as one.
func (n *Nodes) Capacity() map[netip.Prefix]struct{ Used, Room int } {
	out := map[netip.Prefix]struct{ Used, Room int }{}
	for _, s := range n.subnets {
		c := struct{ Used, Room int }{Room: 1 << min(s.HostLen-s.Prefix.Bits(), 30)} // no overflow with 32 bits
		for part := range n.parts {
			if s.Prefix.Contains(part.Addr()) {
				c.Used++
			}
		}

		out[s.Prefix] = c
	}

	return out
}

// All returns the subnets by node. The caller must not change the map.
func (n *Nodes) All() map[string][]netip.Prefix { return n.held }

// Subnets returns the node's subnets, one of each family that the cluster has. For a family that
// the node lacks, it allocates the lowest free subnet.
func (n *Nodes) Subnets(node string) ([]netip.Prefix, error) {
	have := n.held[node]

	var want []netip.Prefix

	for _, is4 := range n.families() {
		if s, ok := ofFamily(have, is4); ok {
			want = append(want, s)
			continue
		}

		s, err := n.free(is4)
		if err != nil {
			return nil, fmt.Errorf("allocate subnet for node %q: %w", node, err)
		}

		want = append(want, s)
	}

	return want, n.HoldSubnets(node, want)
}

// families lists the families of the cluster, IPv4 as true, in the order of its subnets.
func (n *Nodes) families() []bool {
	var out []bool

	for _, s := range n.subnets {
		is4 := s.Prefix.Addr().Is4()
		if len(out) == 0 || len(out) == 1 && out[0] != is4 {
			out = append(out, is4)
		}
	}

	return out
}

// free returns the lowest free subnet of a family. It tries the cluster subnets in their order.
func (n *Nodes) free(is4 bool) (netip.Prefix, error) {
	var tried []string

	for _, s := range n.subnets {
		if s.Prefix.Addr().Is4() != is4 {
			continue
		}

		tried = append(tried, fmt.Sprintf("%s in parts of /%d", s.Prefix, s.HostLen))

		first := netip.PrefixFrom(s.Prefix.Masked().Addr(), s.HostLen)
		for part := first; part.IsValid() && s.Prefix.Contains(part.Addr()); part = next(part) {
			if n.overlap(part, "") == "" {
				return part, nil
			}
		}
	}

	return netip.Prefix{}, fmt.Errorf("%s: %w", strings.Join(tried, ", "), ErrExhausted)
}

// Release releases the node's allocation and reports whether it had one.
func (n *Nodes) Release(node string) bool {
	id, numbered := n.byName[node]
	had := numbered || n.held[node] != nil

	if numbered {
		delete(n.ids, id)
		delete(n.byName, node)
	}

	n.ReleaseSubnets(node)

	return had
}

// ReleaseSubnets releases the node's subnets, not its id.
func (n *Nodes) ReleaseSubnets(node string) {
	for _, s := range n.held[node] {
		delete(n.parts, s)
	}

	delete(n.held, node)
}

// Len returns the number of nodes with subnets.
func (n *Nodes) Len() int { return len(n.held) }

// JoinAddress returns the address of the gateway router of the node with the id: the address 1+id
// after the join subnet's own, which is never the cluster router's (address 1). It returns
// ErrExhausted (wrapped) if the subnet is too small.
func JoinAddress(join netip.Prefix, id int) (netip.Prefix, error) {
	addr := offset(join.Masked().Addr(), int64(1+id))
	if !addr.IsValid() || !join.Contains(addr) {
		return netip.Prefix{}, fmt.Errorf("join subnet %s has no address for node id %d: %w",
			join, id, ErrExhausted)
	}

	return netip.PrefixFrom(addr, join.Bits()), nil
}

// next returns the prefix of the same length after p, invalid at the end of the address space.
func next(p netip.Prefix) netip.Prefix {
	size := new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
	first := new(big.Int).SetBytes(p.Addr().AsSlice())

	addr := fromInt(first.Add(first, size), p.Addr().BitLen()/8)
	if !addr.IsValid() {
		return netip.Prefix{}
	}

	return netip.PrefixFrom(addr, p.Bits())
}

// offset returns the address n after a, invalid past the end of the address space.
func offset(a netip.Addr, n int64) netip.Addr {
	sum := new(big.Int).SetBytes(a.AsSlice())
	return fromInt(sum.Add(sum, big.NewInt(n)), a.BitLen()/8)
}

// fromInt returns the number as an address of that many bytes, invalid if it does not fit.
func fromInt(n *big.Int, size int) netip.Addr {
	if n.BitLen() > size*8 {
		return netip.Addr{}
	}

	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, size)))

	return a
}

// ofFamily returns the first prefix of the family.
func ofFamily(prefixes []netip.Prefix, is4 bool) (netip.Prefix, bool) {
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			return p, true
		}
	}

	return netip.Prefix{}, false
}
