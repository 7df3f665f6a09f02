package plan

import (
	"fmt"
	"testing"
)

// TestSplit checks that load balancers with many VIPs are divided, and that few VIPs move if their
// number changes.
func TestSplit(t *testing.T) {
	vips := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("10.96.0.1:%d", i+1)] = fmt.Sprint(i)
		}

		return out
	}

	places := func(n int) map[string]string {
		out := map[string]string{}

		for suffix, part := range split("cluster", vips(n)) {
			if len(part) > 2*balancerVIPs {
				t.Errorf("%d VIPs: %d in one load balancer", n, len(part))
			}

			for vip, backends := range part {
				if backends != vips(n)[vip] {
					t.Errorf("%s has backends %q", vip, backends)
				}

				out[vip] = suffix
			}
		}

		if len(out) != n {
			t.Errorf("%d VIPs of %d", len(out), n)
		}

		return out
	}
	for _, tt := range []struct{ from, to, moved int }{
		{balancerVIPs - 1, balancerVIPs, 0}, // one load balancer
		{200, 250, 0},
		{4 * balancerVIPs, 4*balancerVIPs + 1, 4 * balancerVIPs * 6 / 10}, // four become eight
		{1025, 2048, 0},
	} {
		before, after := places(tt.from), places(tt.to)
		moved := 0

		for vip, suffix := range before {
			if after[vip] != suffix {
				moved++
			}
		}

		if moved > tt.moved {
			t.Errorf("%d to %d VIPs: %d moved, want at most %d", tt.from, tt.to, moved, tt.moved)
		}
	}

	if got := split("cluster", vips(balancerVIPs)); len(got) != 1 || got["cluster"] == nil {
		t.Errorf("%d VIPs have load balancers %v", balancerVIPs, got)
	}
}
