package nb_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// What goes with its switch goes from its groups, also where these change at the
// same time: ovsdb-server 3.1 would leave it there.
func TestCommitDeletesOrphans(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	group := func(version string) []plan.Row {
		return []plan.Row{plan.PortGroup{Name: "pods", ExternalIDs: map[string]string{"version": version}}}
	}
	pod := func(node string) []plan.Row {
		return []plan.Row{plan.LogicalSwitchPort{Switch: node, Groups: []string{"pods"}, Name: "ns_" + node}}
	}
	commit(t, db, map[plan.Key][]plan.Row{
		plan.NodeKey("n1"): {plan.LogicalSwitch{Name: "n1"}}, plan.NodeKey("n2"): {plan.LogicalSwitch{Name: "n2"}},
		plan.SelectorKey("pods"): group("1"), plan.PodKey("ns", "n1"): pod("n1"), plan.PodKey("ns", "n2"): pod("n2"),
	})
	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n1"): nil, plan.SelectorKey("pods"): group("2")})
	ports := s.Nbctl("--bare", "--columns=_uuid", "list", "logical_switch_port")
	if got := s.Nbctl("--bare", "--columns=ports", "list", "port_group"); got != ports || got == "" {
		t.Errorf("in the group: %q, ports there are: %q", got, ports)
	}
}
