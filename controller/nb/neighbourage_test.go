package nb

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

func TestNeighbourAgeSuitsTheRelease(t *testing.T) {
	for version, want := range map[string]string{
		"7.0.0": "300", "6.3.0": "300", // OVN 23.03 and older
		"7.1.0": "60", "7.11.0": "60", "8.0.0": "60", "": "60",
	} {
		planned := []plan.Row{plan.LogicalSwitch{Name: "join"}, plan.LogicalRouter{Name: "GR_a", Options: map[string]string{plan.NeighbourAge: "60"}}, plan.LogicalRouter{Name: "r"}}
		d := &DB{forgetsUsed: schemaForgetsUsed(version)}

		rows := d.supportedRows(planned)
		if got := rows[1].(plan.LogicalRouter).Options[plan.NeighbourAge]; got != want {
			t.Errorf("schema %q: %q seconds, want %q", version, got, want)
		}

		if _, has := rows[2].(plan.LogicalRouter).Options[plan.NeighbourAge]; has {
			t.Errorf("schema %q: a router without the option has it", version)
		}

		if planned[1].(plan.LogicalRouter).Options[plan.NeighbourAge] != "60" {
			t.Errorf("schema %q: the plan was changed", version)
		}
	}
}
