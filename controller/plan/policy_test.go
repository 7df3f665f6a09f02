package plan

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestSelects checks that selects agrees with apimachinery for all selectors that checkLabels
// accepts.
func TestSelects(t *testing.T) {
	var selectors []*metav1.LabelSelector

	for _, op := range []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Like", ""} {
		for _, values := range [][]string{nil, {"x"}, {"x", "y"}, {""}} {
			for _, match := range []map[string]string{nil, {"k": "x"}, {"l": "y"}, {"k": ""}} {
				selectors = append(selectors, &metav1.LabelSelector{
					MatchLabels: match, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: op, Values: values}},
				})
			}
		}
	}

	for _, s := range selectors {
		want, err := metav1.LabelSelectorAsSelector(s)
		if (err != nil) != (checkLabels(s) != nil) {
			t.Errorf("%v: error of apimachinery %v, of checkLabels %v", s, err, checkLabels(s))
		}

		if err != nil {
			continue
		}

		for _, have := range []map[string]string{nil, {"k": "x"}, {"k": "y"}, {"k": "z"}, {"k": ""}, {"l": "y"}, {"k": "x", "l": "y"}} {
			if got := selects(s, have); got != want.Matches(labels.Set(have)) {
				t.Errorf("selects(%v, %v) = %t", s, have, got)
			}
		}
	}
}

// TestBlockPrefixes checks that a block's prefixes cover exactly the addresses that are in the
// block and in none of its exceptions.
func TestBlockPrefixes(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))

	for range 300 {
		block := networkingv1.IPBlock{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, 0}), 22).String()}

		var excepts []netip.Prefix

		for range r.IntN(5) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(4)), byte(r.IntN(256))}), 23+r.IntN(10)).Masked()
			excepts, block.Except = append(excepts, p), append(block.Except, p.String())
		}

		prefixes, err := blockPrefixes(&block, maxRulePrefixes)
		if err != nil {
			t.Fatal(err)
		}

		for a := netip.MustParseAddr("9.255.255.250"); a != netip.MustParseAddr("10.0.4.5"); a = a.Next() {
			want := 0
			if netip.MustParsePrefix(block.CIDR).Contains(a) && !cluster.Contains(excepts, a) {
				want = 1
			}

			got := 0

			for _, p := range prefixes {
				if p.Contains(a) {
					got++
				}
			}

			if got != want {
				t.Fatalf("%v: %s is in %d of %v, want %d", block, a, got, prefixes, want)
			}
		}
	}
}
