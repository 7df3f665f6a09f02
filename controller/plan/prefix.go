package plan

import (
	"net/netip"
	"slices"
	"sort"
)

// subtract returns p without the holes, as the fewest prefixes, sorted. It returns false, without
// finishing, if there are more than limit. The holes may overlap and be in any order.
//
// It sorts the holes and walks them once. Each step emits a prefix or splits the holes: n holes
// need at most n + limit steps.
func subtract(p netip.Prefix, holes []netip.Prefix, limit int) ([]netip.Prefix, bool) {
	s := sweep{limit: limit}
	s.prefix(p.Masked(), disjoint(holes, p))

	return s.out, !s.over
}

// disjoint returns the prefixes that overlap p, sorted, without those inside other prefixes.
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
	limit int
	out   []netip.Prefix
	over  bool
}

// prefix adds p without the holes. The holes are disjoint, sorted and overlap p.
func (s *sweep) prefix(p netip.Prefix, holes []netip.Prefix) {
	switch {
	case s.over:
	case len(holes) == 0 && len(s.out) == s.limit:
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
