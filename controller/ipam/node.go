package ipam

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
)

// ErrExhausted is returned (wrapped) when there is nothing left to hand out.
var ErrExhausted = errors.New("exhausted")

// ErrTaken is returned (wrapped) when another owner holds what was asked for.
var ErrTaken = errors.New("taken")

// Subnet is a range of pod addresses and the prefix length of each node's part of it.
type Subnet struct {
	Prefix  netip.Prefix
	HostLen int
}

// Nodes hands out node ids, from 1, and one pod subnet a family to each node.
type Nodes struct {
	subnets []Subnet
	maxID   int
	ids     map[int]string          // id → node
	byName  map[string]int          // node → id
	parts   map[netip.Prefix]string // subnet → node
	held    map[string][]netip.Prefix
}

// NewNodes returns an empty book. Ids go up to maxID.
func NewNodes(subnets []Subnet, maxID int) *Nodes {
	return &Nodes{
		subnets: subnets, maxID: maxID, ids: map[int]string{}, byName: map[string]int{},
		parts: map[netip.Prefix]string{}, held: map[string][]netip.Prefix{},
	}
}

// HoldID notes that the node has the id. It returns ErrTaken if another has it.
func (n *Nodes) HoldID(node string, id int) error {
	if owner, ok := n.ids[id]; ok && owner != node {
		return fmt.Errorf("hold node id %d for %q: %w by %q", id, node, ErrTaken, owner)
	}
	if old, ok := n.byName[node]; ok && old != id {
		delete(n.ids, old)
	}
	n.ids[id], n.byName[node] = node, id
	return nil
}

// ID returns the node's id, a new one if it has none.
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

// HoldSubnets notes that the node has the subnets. It returns ErrTaken if one
// of them overlaps what another node has, and then holds none.
func (n *Nodes) HoldSubnets(node string, subnets []netip.Prefix) error {
	for _, s := range subnets {
		if owner := n.overlap(s.Masked(), node); owner != "" {
			return fmt.Errorf("hold subnet %s for node %q: %w by %q", s, node, ErrTaken, owner)
		}
	}
	n.releaseSubnets(node)
	for _, s := range subnets {
		n.parts[s.Masked()] = node
		n.held[node] = append(n.held[node], s.Masked())
	}
	return nil
}

func (n *Nodes) overlap(s netip.Prefix, except string) string {
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

// Subnets returns the node's subnets, one of each family that the cluster has,
// those it lacks allocated: the lowest that is free.
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

// families lists the families of the cluster in the order of its subnets.
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

func (n *Nodes) free(is4 bool) (netip.Prefix, error) {
	var tried []string
	for _, s := range n.subnets {
		if s.Prefix.Addr().Is4() != is4 {
			continue
		}
		tried = append(tried, fmt.Sprintf("%s in parts of /%d", s.Prefix, s.HostLen))
		for part := netip.PrefixFrom(s.Prefix.Masked().Addr(), s.HostLen); part.IsValid() && s.Prefix.Contains(part.Addr()); part = next(part) {
			if n.overlap(part, "") == "" {
				return part, nil
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("%s: %w", strings.Join(tried, ", "), ErrExhausted)
}

// Release forgets the node.
func (n *Nodes) Release(node string) {
	if id, ok := n.byName[node]; ok {
		delete(n.ids, id)
		delete(n.byName, node)
	}
	n.releaseSubnets(node)
}

func (n *Nodes) releaseSubnets(node string) {
	for _, s := range n.held[node] {
		delete(n.parts, s)
	}
	delete(n.held, node)
}

// Len is how many nodes have subnets.
func (n *Nodes) Len() int { return len(n.held) }

// JoinAddress is the address of the gateway router of the node with the id:
// 1+id into the join subnet, after the cluster router's.
func JoinAddress(join netip.Prefix, id int) (netip.Prefix, error) {
	addr := offset(join.Masked().Addr(), int64(1+id))
	if !addr.IsValid() || !join.Contains(addr) {
		return netip.Prefix{}, fmt.Errorf("join subnet %s has no address for node id %d: %w", join, id, ErrExhausted)
	}
	return netip.PrefixFrom(addr, join.Bits()), nil
}

// next returns the prefix of the same length after p, invalid at the end of
// the address space.
func next(p netip.Prefix) netip.Prefix {
	shift := uint(p.Addr().BitLen() - p.Bits())
	n := new(big.Int).SetBytes(p.Addr().AsSlice())
	n.Add(n, new(big.Int).Lsh(big.NewInt(1), shift))
	addr := fromInt(n, p.Addr().BitLen()/8)
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

func fromInt(n *big.Int, size int) netip.Addr {
	if n.BitLen() > size*8 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, size)))
	return a
}

func ofFamily(prefixes []netip.Prefix, is4 bool) (netip.Prefix, bool) {
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
