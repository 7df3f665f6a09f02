package agent

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
)

// TestPolicyHasAnnotations: the admission policy allows each annotation that the agent writes.
func TestPolicyHasAnnotations(t *testing.T) {
	policy, err := os.ReadFile("../deploy/helm/ovn-ebpf/templates/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}

	own := nodeAnnotations(Config{}, gateway.Node{}, nil, chassis{id: "c"}, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")})
	if len(own) != 9 {
		t.Errorf("%d annotations", len(own))
	}

	for key := range own {
		if !strings.Contains(string(policy), "'"+key+"'") {
			t.Errorf("the policy does not allow %s", key)
		}
	}
}
