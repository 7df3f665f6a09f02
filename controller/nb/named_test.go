package nb_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestNamedRowIsNotStale checks that a cached name is used again only for the same row: not after
// the row was deleted, renamed or given to another owner.
func TestNamedRowIsNotStale(t *testing.T) {
	s := nbtest.Start(t)
	db, ctx := open(t, s), context.Background()
	group := func(rows ...plan.Row) {
		t.Helper()

		if errs := db.Commit(ctx, map[plan.Key][]plan.Row{plan.ClusterKey(): rows}); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	ports := 0
	// put adds one port and returns its error.
	put := func() error {
		ports++
		key := plan.PodKey("ns", strings.Repeat("p", ports))

		return db.Commit(ctx, map[plan.Key][]plan.Row{key: {plan.LogicalSwitchPort{Switch: "ls", Name: key.Name, Groups: []string{"pg"}}}})[key]
	}
	members := func(group string) int {
		t.Helper()
		return len(strings.Fields(s.Nbctl("--bare", "--columns=ports", "find", "port_group", "name="+group)))
	}
	sw := plan.LogicalSwitch{Name: "ls"}
	group(sw, plan.PortGroup{Name: "pg"})

	for want := range 3 {
		if err := put(); err != nil || members("pg") != want+1 {
			t.Fatalf("%v, group has %d ports, want %d", err, members("pg"), want+1)
		}
	}

	group(sw) // deletes the group; another one gets its name below

	var missing *nb.MissingRowError
	if err := put(); !errors.As(err, &missing) {
		t.Fatalf("deleted group: error %v, want MissingRowError", err)
	}

	group(sw, plan.PortGroup{Name: "pg"})

	if err := put(); err != nil || members("pg") != 1 {
		t.Fatalf("new group of that name: %v, it has %d ports, want 1", err, members("pg"))
	}

	for what, change := range map[string][]string{
		"its name": {"set", "port_group", "pg", "name=other"}, "its owner": {"clear", "port_group", "pg", "external_ids"},
	} {
		s.Nbctl(change...)
		nbtest.Eventually(t, "MissingRowError for a group that lost "+what, func() bool { return errors.As(put(), &missing) })
		s.Nbctl("--all", "destroy", "port_group")
		nbtest.Eventually(t, "group restored", func() bool {
			group(sw, plan.PortGroup{Name: "pg"})
			return put() == nil
		})
	}
}
