package nb_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestCommitDeletesOrphans checks that a port that is deleted with its switch leaves its groups,
// even if the same transaction changes the groups. ovsdb-server 3.1 would keep the reference.
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
		t.Errorf("members of the group: %q, existing ports: %q", got, ports)
	}
}

// TestCommitOfDeletedGroupKeepsOtherMembers checks that deleting a port group removes no port from
// other groups, not even until the ports' owners are reconciled. Otherwise packets that a group's
// ACLs drop would pass in between. The pods' own plan may still name the deleted group.
func TestCommitOfDeletedGroupKeepsOtherMembers(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, map[plan.Key][]plan.Row{
		plan.NodeKey("n"): {plan.LogicalSwitch{Name: "n"}}, plan.SelectorKey("a"): {plan.PortGroup{Name: "a"}}, plan.SelectorKey("b"): {plan.PortGroup{Name: "b"}},
		plan.PodKey("ns", "p"): {plan.LogicalSwitchPort{Switch: "n", Groups: []string{"a", "b"}, Name: "ns_p"}},
	})
	commit(t, db, map[plan.Key][]plan.Row{plan.SelectorKey("b"): nil})

	port := s.Nbctl("--bare", "--columns=_uuid", "list", "logical_switch_port")
	if got := s.Nbctl("--bare", "--columns=ports", "list", "port_group"); got != port || got == "" {
		t.Errorf("members of the other group: %q, want the port %q", got, port)
	}
}

// TestCommitDeletesReferences checks that a deleted load balancer leaves its routers, switches and
// groups, even if the same transaction changes them.
func TestCommitDeletesReferences(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	node := func(version string) []plan.Row {
		return []plan.Row{
			plan.LogicalRouter{Name: "gr", Options: map[string]string{"version": version}},
			plan.LogicalSwitch{Name: "sw", OtherConfig: map[string]string{"version": version}},
		}
	}
	policy := plan.RouterPolicy{Router: "gr", Priority: 1, Match: "ip4", Action: "allow"}
	balancer := func(name string) []plan.Row {
		return []plan.Row{plan.LoadBalancer{Name: name, Routers: []string{"gr"}, Switches: []string{"sw"}, Groups: []string{"group"}}}
	}
	commit(t, db, map[plan.Key][]plan.Row{
		plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}, plan.NodeKey("n"): append(node("1"), policy),
		plan.ServiceKey("ns", "a"): balancer("a"), plan.ServiceKey("ns", "b"): balancer("b"),
	})
	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n"): append(node("2"), policy), plan.ServiceKey("ns", "a"): nil, plan.ServiceKey("ns", "c"): balancer("c")})
	commit(t, db, map[plan.Key][]plan.Row{plan.ServiceKey("ns", "b"): nil})
	commit(t, db, map[plan.Key][]plan.Row{plan.ServiceKey("ns", "d"): balancer("d")})
	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n"): node("2"), plan.ServiceKey("ns", "d"): nil}) // deletes a row of the router

	want := s.Nbctl("--bare", "--columns=_uuid", "find", "load_balancer", "name=c")
	for table, column := range map[string]string{"logical_router": "load_balancer", "logical_switch": "load_balancer", "load_balancer_group": "load_balancer"} {
		if got := s.Nbctl("--bare", "--columns="+column, "list", table); got != want || got == "" {
			t.Errorf("%s of %s: %q, existing load balancers: %q", column, table, got, want)
		}
	}
}
