package reconcile

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestHeavyKeys checks that a key is heavy while its rows are large.
func TestHeavyKeys(t *testing.T) {
	h := heavyKeys{}
	acl := func(n int) []plan.Row { return []plan.Row{plan.ACL{Match: strings.Repeat("x", n)}} }
	large, vips, small := plan.PolicyKey("a", "large"), plan.ServiceKey("a", "large"), plan.PodKey("b", "small")
	h.record(large, acl(heavyRows))
	h.record(vips, []plan.Row{plan.LoadBalancer{VIPs: map[string]string{"10.0.0.1:80": strings.Repeat("x", heavyRows)}}})
	h.record(small, acl(heavyRows-1))

	if !h.has(large) || !h.has(vips) || h.has(small) || h.has(plan.PodKey("b", "other")) {
		t.Errorf("heavy keys: %v, want %v and %v", h, large, vips)
	}

	h.record(large, acl(10))
	h.record(vips, nil)

	if len(h) != 0 {
		t.Errorf("heavy keys: %v, want none", h)
	}
}
