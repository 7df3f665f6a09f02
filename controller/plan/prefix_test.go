package plan

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestSubtractRandom compares subtract with sets. In a universe of 256 addresses, inside a network
// of either family, the result covers exactly the addresses that are in no hole, in the fewest
// prefixes, sorted.
func TestSubtractRandom(t *testing.T) {
	seed := randomtest.Seed(t)

	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		whole := netip.MustParsePrefix([]string{"203.0.113.0/24", "2001:db8::/120"}[r.IntN(2)])
		bits := whole.Bits()
		at := func(i int) netip.Addr {
			a := whole.Addr().AsSlice()
			a[len(a)-1] = byte(i)
			out, _ := netip.AddrFromSlice(a)

			return out
		}

		var (
			holes []netip.Prefix
			taken [256]bool
		)

		for range r.IntN(12) {
			h := netip.PrefixFrom(at(r.IntN(256)), bits+r.IntN(9)) // not masked, may be the whole network

			holes = append(holes, h)
			for i := range taken {
				taken[i] = taken[i] || h.Contains(at(i))
			}
		}
		// The fewest prefixes are the aligned blocks that are free and have a parent that is not.
		want := 0

		for size := 1; size <= 256; size *= 2 {
			for first := 0; first < 256; first += size {
				parent := first / (2 * size) * 2 * size
				if !anyOf(taken[first:first+size]) && (size == 256 || anyOf(taken[parent:parent+2*size])) {
					want++
				}
			}
		}

		got, ok := subtract(whole, holes, 1000)
		if !ok || len(got) != want || !slices.IsSortedFunc(got, comparePrefix) {
			t.Fatalf("%s without %v: %v, %t, want %d prefixes, sorted", whole, holes, got, ok, want)
		}

		for i := range taken {
			if slices.ContainsFunc(got, func(p netip.Prefix) bool { return p.Contains(at(i)) }) == taken[i] {
				t.Fatalf("%s without %v: %v is wrong about %s", whole, holes, got, at(i))
			}
		}

		if _, ok := subtract(whole, holes, want-1); want > 0 && ok {
			t.Fatalf("%s without %v: %d prefixes, want an error for at most %d", whole, holes, want, want-1)
		}
	}
}

func anyOf(taken []bool) bool { return slices.Contains(taken, true) }

// TestSubtractWhole checks a whole family: without holes all of it remains, with itself as a hole
// nothing remains.
func TestSubtractWhole(t *testing.T) {
	for _, text := range []string{"0.0.0.0/0", "::/0"} {
		whole := netip.MustParsePrefix(text)
		if got, ok := subtract(whole, nil, 1); !ok || len(got) != 1 || got[0] != whole {
			t.Errorf("%s without holes: %v, %t", whole, got, ok)
		}

		if got, ok := subtract(whole, []netip.Prefix{whole}, 0); !ok || len(got) != 0 {
			t.Errorf("%s without itself: %v, %t", whole, got, ok)
		}

		last := netip.PrefixFrom(whole.Addr(), whole.Addr().BitLen())
		if got, ok := subtract(whole, []netip.Prefix{last}, 128); !ok || len(got) != whole.Addr().BitLen() {
			t.Errorf("%s without an address: %d prefixes, %t", whole, len(got), ok)
		}
	}
}
