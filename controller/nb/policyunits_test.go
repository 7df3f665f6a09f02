package nb_test

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestDB_PolicyUnits checks that only rows that change count, and that an ACL counts by its match.
func TestDB_PolicyUnits(t *testing.T) {
	db := open(t, nbtest.Start(t))
	k := plan.PolicyKey("ns", "p")
	acl := func(rule, match string) plan.Row {
		return plan.ACL{Group: "g", Rule: rule, Direction: "to-lport", Priority: 1001, Match: match, Action: "allow-related"}
	}
	long := "ip4 && " + strings.Repeat("a", 10*32)
	now := []plan.Row{plan.PortGroup{Name: "g"}, acl("a", "ip4"), acl("b", long)}
	expect := func(name string, rows []plan.Row, want int) {
		t.Helper()

		if got := db.PolicyUnits(k, rows); got != want {
			t.Errorf("%s: %d units, want %d", name, got, want)
		}
	}

	expect("three new rows, one with a long match", now, 3+10)
	commit(t, db, map[plan.Key][]plan.Row{k: now})
	expect("nothing changes", now, 0)
	expect("a short match changes", []plan.Row{now[0], acl("a", "ip6"), now[2]}, 1)
	expect("a long match is deleted", now[:2], 1+10)
	expect("all rows are deleted", nil, 3+10)
	expect("a row more", append(now, plan.PortGroup{Name: "h"}), 1)
}
