package nb_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestForcedSNATHasNoPorts holds a known limit of docs/services.md: the SNAT that a load balancer of
// a gateway router forces has no port range, in 25.03 as in 23.03. In 25.03 a NAT with a match has
// one, and precedes it.
func TestForcedSNATHasNoPorts(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("n1")
	ovn.Nbctl("lr-add", "gr", "--", "set", "Logical_Router", "gr", "options:chassis=n1", "options:lb_force_snat_ip=192.0.2.1:49152-65535",
		"--", "lrp-add", "gr", "rtoe", "02:00:00:00:00:01", "192.0.2.1/24", "--", "lb-add", "lb", "192.0.2.1:80", "198.51.100.1:80", "--", "lr-lb-add", "gr", "lb")
	ovn.Sync()

	const forced = "(flags.force_snat_for_lb == 1 && ip4), action=(ct_snat(192.0.2.1);)"
	if flows := ovn.Flows(); !strings.Contains(flows, forced) {
		t.Errorf("no logical flow has %s, the limit may be gone:\n%s", forced, flows)
	}

	var schema struct {
		Tables map[string]struct{ Columns map[string]any }
	}

	text, err := os.ReadFile(nbtest.Schema(t, "ovn-nb.ovsschema"))
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}

	if err != nil {
		t.Fatal(err)
	}

	if schema.Tables["NAT"].Columns["match"] == nil {
		t.Log("this OVN's NAT has no match")
		return
	}

	ovn.Nbctl("--id=@n", "create", "NAT", "type=snat", "external_ip=192.0.2.1", "logical_ip=0.0.0.0/0", `external_port_range="49152-65535"`,
		`match="flags.force_snat_for_lb == 1"`, "--", "add", "Logical_Router", "gr", "nat", "@n")
	ovn.Sync()

	var found bool
	for flow := range strings.Lines(ovn.Flows()) {
		found = found || strings.Contains(flow, "priority=300") && strings.Contains(flow, "(flags.force_snat_for_lb == 1)") && strings.Contains(flow, "ct_snat(192.0.2.1,49152-65535)")
	}

	if !found {
		t.Errorf("no logical flow before it has the port range:\n%s", ovn.Flows())
	}
}
