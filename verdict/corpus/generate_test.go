package corpus

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// absent are the reasons that a layout does not have.
var absent = map[verdict.Layout][]verdict.Reason{
	verdict.Direct:    {verdict.HostOVN, verdict.HostOut},
	verdict.Bridged:   {verdict.GeneveOVN, verdict.EncapOut},
	verdict.Dedicated: {verdict.HostOVN, verdict.HostOut, verdict.GeneveOVN, verdict.EncapOut},
}

// The generator meets every reason, whatever it may make; and what it may not
// make it does not.
func TestGenerator_meetsEveryReason(t *testing.T) {
	seed := randomtest.Seed(t)

	for layout, none := range absent {
		for _, o := range []Options{{Layout: layout}, {Layout: layout, Mangle: true, Tags: true}} {
			seen := generate(t, seed, o)
			for _, r := range verdict.Rules() {
				gone := slices.Contains(none, r.Reason) || !o.Tags && (r.Reason == verdict.VLAN || r.Reason == verdict.NestedTag) || !o.Mangle && r.Reason == verdict.Malformed
				if n := seen[r.Reason]; !bound[r.Reason] && n == 0 && !gone || n > 0 && slices.Contains(none, r.Reason) {
					t.Errorf("%+v: %d frames decided by %s", o, n, r.Name)
				}
			}

			t.Logf("%+v: %v", o, seen)
		}
	}
}

func generate(t *testing.T, seed uint64, o Options) map[verdict.Reason]int {
	t.Helper()

	g := NewGenerator(seed, o)
	seen := make(map[verdict.Reason]int)

	for range 200 {
		n := g.Node()

		m := n.Model(now)
		for range 500 {
			dir, b := g.Frame(n)

			f := verdict.Parse(b)
			if isIP := f.Type == EtherIPv4 || f.Type == EtherIPv6; isIP && !f.Whole && !o.Mangle {
				t.Fatalf("%x is not well formed", b)
			}

			if f.Tagged && !o.Tags {
				t.Fatalf("%x is tagged", b)
			}

			d := m.Decide(dir, f, now)
			m.Tables.Apply(d, now)
			seen[d.Reason]++
		}
	}

	return seen
}

// The same seed makes the same.
func TestGenerator_repeats(t *testing.T) {
	o := Options{Layout: verdict.Bridged, Tags: true, Mangle: true}

	a, b := NewGenerator(1, o), NewGenerator(1, o)
	for range 20 {
		na, nb := a.Node(), b.Node()
		for range 100 {
			dirA, fa := a.Frame(na)

			dirB, fb := b.Frame(nb)
			if dirA != dirB || !bytes.Equal(fa, fb) {
				t.Fatalf("%s %x, then %s %x", dirA, fa, dirB, fb)
			}
		}
	}
}
