package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestRangeMasks compares the number of masks with those that OVN's algorithm makes. TestPolicyCost
// in controller/nb compares it with OVN.
func TestRangeMasks(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	most := 0

	check := func(first, last int32) {
		got, want := rangeMasks(first, last), len(masksOf(uint16(first), uint16(last)))
		if got != want {
			t.Fatalf("rangeMasks(%d, %d) = %d, want %d", first, last, got, want)
		}

		most = max(most, got)
	}
	for _, n := range []int32{1, 2, 1023, 1024, 32767, 32768, 65534, 65535} {
		check(n, n)
		check(1, n)
		check(n, 65535)
	}

	for range 20000 {
		first := 1 + r.Int32N(65535)
		check(first, first+r.Int32N(65536-first))
	}

	if most > 30 { // docs/networkpolicy.md
		t.Errorf("a range has %d masks, want at most 30", most)
	}
}

// masked is a prefix of a port.
type masked struct{ value, mask uint16 }

// masksOf returns the masks of a range as OVN's expr_simplify_relational and crush_cmps make them.
func masksOf(first, last uint16) map[masked]bool {
	least, most := []masked{{first, 0xffff}}, []masked{{last, 0xffff}}
	if last == 0xffff {
		most = []masked{{0, 0}}
	}

	for bit := range 16 {
		mask := uint16(0xffff) << bit
		if first>>bit&1 == 0 {
			least = append(least, masked{(first ^ 1<<bit) & mask, mask})
		}

		if last != 0xffff && last>>bit&1 == 1 {
			most = append(most, masked{(last ^ 1<<bit) & mask, mask})
		}
	}

	out := map[masked]bool{}

	for _, a := range least {
		for _, b := range most {
			if (a.value^b.value)&a.mask&b.mask == 0 {
				out[masked{a.value | b.value, a.mask | b.mask}] = true
			}
		}
	}

	return out
}
