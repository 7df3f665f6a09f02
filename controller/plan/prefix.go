package plan

import (
	"net/netip"
	"slices"
	"sort"
)

// subtract returns p without the holes, as the fewest prefixes, sorted. It returns false, without
// finishing, if there are more than limit. The holes may overlap and be in any order.
//
// A prefix with holes is cut in half, and so are its holes, until a part has no holes or is one.
// The holes are sorted first, so a cut is a binary search. There are fewer cuts than holes and
// resulting prefixes together.
func subtract(p netip.Prefix, holes []netip.Prefix, limit int) ([]netip.Prefix, bool) {
	s := subtraction{limit: limit}
	s.add(p.Masked(), disjoint(holes, p))

	return s.out, !s.isOverLimit
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
		if n == 0 || !out[n-1].Overlaps(q) { // of two that overlap, the wider one comes first
			out[n] = q
			n++
		}
	}

	return out[:n]
}

// subtraction collects the prefixes of the result of subtract.
type subtraction struct {
	limit       int
	out         []netip.Prefix
	isOverLimit bool
}

// add adds p without the holes. The holes are disjoint, sorted and overlap p.
func (s *subtraction) add(p netip.Prefix, holes []netip.Prefix) {
	switch {
	case s.isOverLimit:
	case len(holes) == 0 && len(s.out) == s.limit:
		s.isOverLimit = true
	case len(holes) == 0:
		s.out = append(s.out, p)
	case holes[0].Bits() <= p.Bits(): // the first hole covers p: nothing remains
	default: // both halves of p, each with its holes
		high := setBit(p.Addr(), p.Bits())
		n := sort.Search(len(holes), func(i int) bool { return holes[i].Addr().Compare(high) >= 0 })
		s.add(netip.PrefixFrom(p.Addr(), p.Bits()+1), holes[:n])
		s.add(netip.PrefixFrom(high, p.Bits()+1), holes[n:])
	}
}

// setBit sets the n-th bit from the left, counted from 0.
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

// comparePrefix orders prefixes by address. At the same address, the wider one comes first.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}

	return a.Bits() - b.Bits()
}
