package plan

import (
	"net/netip"
	"slices"
	"sort"
)

// subtract returns what of p is in none of the holes, as the fewest prefixes, sorted. It
// returns false if they are more than most; then they are not worked out. The holes may
// overlap and be in any order.
//
// It sorts the holes and goes through them once. A prefix comes out, or a hole is told from
// another, at each step: with n holes there are at most n + most steps.
func subtract(p netip.Prefix, holes []netip.Prefix, most int) ([]netip.Prefix, bool) {
	s := sweep{most: most}
	s.prefix(p.Masked(), disjoint(holes, p))
	return s.out, !s.over
}

// disjoint returns the prefixes that overlap p, sorted, without those inside of others.
func disjoint(prefixes []netip.Prefix, p netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, q := range prefixes {
		if p.Overlaps(q) {
			out = append(out, q.Masked())
		}
	}
	slices.SortFunc(out, comparePrefix)
	n := 0
	for _, q := range out {
		if n == 0 || !out[n-1].Overlaps(q) { // the wider one comes first
			out[n] = q
			n++
		}
	}
	return out[:n]
}

type sweep struct {
	most int
	out  []netip.Prefix
	over bool
}

// prefix adds what of p is in none of the holes, which are disjoint, sorted and overlap p.
func (s *sweep) prefix(p netip.Prefix, holes []netip.Prefix) {
	switch {
	case s.over:
	case len(holes) == 0 && len(s.out) == s.most:
		s.over = true
	case len(holes) == 0:
		s.out = append(s.out, p)
	case holes[0].Bits() <= p.Bits(): // all of p
	default:
		high := setBit(p.Addr(), p.Bits())
		n := sort.Search(len(holes), func(i int) bool { return holes[i].Addr().Compare(high) >= 0 })
		s.prefix(netip.PrefixFrom(p.Addr(), p.Bits()+1), holes[:n])
		s.prefix(netip.PrefixFrom(high, p.Bits()+1), holes[n:])
	}
}

// setBit sets the n-th bit from the left.
func setBit(a netip.Addr, n int) netip.Addr {
	if a.Is4() {
		b := a.As4()
		b[n/8] |= 0x80 >> (n % 8)
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	b[n/8] |= 0x80 >> (n % 8)
	return netip.AddrFrom16(b)
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
