package reconcile

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestHeavyKeysGoLast: a key whose rows were large goes alone and after the others of its
// batch, until its rows are small again.
func TestHeavyKeysGoLast(t *testing.T) {
	h, none := heavyKeys{}, func(plan.Key) bool { return false }
	acl := func(n int) []plan.Row { return []plan.Row{plan.ACL{Match: strings.Repeat("x", n)}} }
	large, vips, small := plan.PolicyKey("a", "large"), plan.ServiceKey("a", "large"), plan.PodKey("b", "small")
	h.record(large, acl(heavyRows))
	h.record(vips, []plan.Row{plan.LoadBalancer{VIPs: map[string]string{"10.0.0.1:80": strings.Repeat("x", heavyRows)}}})
	h.record(small, acl(heavyRows-1))

	other := plan.PodKey("b", "other")
	got := h.batches([]plan.Key{large, small, vips, other}, none)

	want := [][]plan.Key{{small, other}, {large}, {vips}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("batches %v, want %v", got, want)
	}

	h.record(large, acl(10))
	h.record(vips, nil)

	if got := h.batches([]plan.Key{large, vips}, none); len(got) != 1 || len(h) != 0 {
		t.Errorf("batches %v, heavy %v: none is any more", got, h)
	}

	if got := h.batches(nil, none); len(got) != 0 {
		t.Errorf("batches of nothing: %v", got)
	}
}
