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

// A row that was found by its name is found again, and no other: not one that is gone, nor
// one that has another name or owner by now.
func TestNamedAgain(t *testing.T) {
	s := nbtest.Start(t)
	db, ctx := open(t, s), context.Background()
	group := func(rows ...plan.Row) {
		t.Helper()
		if errs := db.Commit(ctx, map[plan.Key][]plan.Row{plan.ClusterKey(): rows}); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	ports := 0
	// put adds one port more, and returns why not.
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

	group(sw) // it goes, and another comes by that name
	var missing *nb.MissingRowError
	if err := put(); !errors.As(err, &missing) {
		t.Fatalf("the group is gone: %v, want that it is missing", err)
	}
	group(sw, plan.PortGroup{Name: "pg"})
	if err := put(); err != nil || members("pg") != 1 {
		t.Fatalf("another group of that name: %v, it has %d ports, want 1", err, members("pg"))
	}

	for what, change := range map[string][]string{
		"its name": {"set", "port_group", "pg", "name=other"}, "its owner": {"clear", "port_group", "pg", "external_ids"},
	} {
		s.Nbctl(change...)
		nbtest.Eventually(t, "a group that lost "+what+" is found no more", func() bool { return errors.As(put(), &missing) })
		s.Nbctl("--all", "destroy", "port_group")
		nbtest.Eventually(t, "the group comes back", func() bool {
			group(sw, plan.PortGroup{Name: "pg"})
			return put() == nil
		})
	}
}
