package nb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// isolate commits the port of a pod in groups that isolate it. Their names are separated by spaces,
// and a group may not exist. It returns the pod's error.
func (w groupWorld) isolate(pod, groups string) error {
	return w.tryLimited(pod, []plan.Row{plan.LogicalSwitchPort{Switch: "n", Name: "ns_" + pod, Groups: strings.Fields(groups)}})
}

// create creates a port group in one transaction.
func (w groupWorld) create(group string) {
	w.t.Helper()

	before := w.db.Stats().Transactions

	commit(w.t, w.db, map[plan.Key][]plan.Row{plan.SelectorKey(group): {plan.PortGroup{Name: group}}})

	if n := w.db.Stats().Transactions - before; n != 1 {
		w.t.Errorf("group %s was created in %d transactions, want 1", group, n)
	}
}

// TestIsolation checks that ports join a new group that isolates them in the transaction that
// creates it, and that nothing else of them changes before.
func TestIsolation(t *testing.T) {
	w := newGroupWorld(t)
	expect := func(name, pod, groups string) {
		t.Helper()

		if got := w.groups(pod); got != groups {
			t.Errorf("%s: %s is in groups %q, want %q", name, pod, got, groups)
		}
	}
	fail := func(pod, groups string) {
		t.Helper()

		var missing *nb.MissingRowError
		if err := w.isolate(pod, groups); !errors.As(err, &missing) {
			t.Errorf("%s in groups %q: %v, want an error", pod, groups, err)
		}
	}
	succeed := func(pod, groups string) {
		t.Helper()

		if err := w.isolate(pod, groups); err != nil {
			t.Errorf("%s in groups %q: %v", pod, groups, err)
		}
	}

	for _, pod := range []string{"p", "q", "r", "s"} {
		succeed(pod, "deny")
	}

	fail("p", "late1 late2")
	fail("q", "deny late1")
	fail("r", "deny late1")
	fail("new", "late1")
	expect("the groups do not exist", "p", "deny")

	succeed("r", "deny") // it does not need the group any more
	w.create("late1")
	expect("one of two groups was created", "p", "deny late1")
	expect("its group was created", "q", "deny late1")
	expect("it does not need it any more", "r", "deny")
	expect("it does not need it", "s", "deny")

	if got := w.s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=ns_new"); got != "" {
		t.Error("a new port was written before its group")
	}

	w.create("late2")
	expect("the second group was created", "p", "deny late1 late2")
	succeed("p", "late1 late2")
	expect("its other change is written", "p", "late1 late2")

	fail("q", "late1 late3")
	fail("s", "late3")
	succeed("q", "")
	commit(t, w.db, map[plan.Key][]plan.Row{plan.PodKey("ns", "s"): nil})
	succeed("s", "deny") // another pod of that name
	w.create("late3")
	expect("another pod has its name", "s", "deny")
	expect("it is not isolated any more", "q", "")

	fail("q", "late4")

	if _, err := w.db.Claim(t.Context(), "this"); err != nil {
		t.Fatal(err)
	}

	w.create("late4")
	expect("a term has begun", "q", "")

	// The database refuses the transaction with "theirs", so the group is created by the next one.
	fail("q", "late5")
	w.s.Nbctl("pg-add", "theirs")

	errs := w.db.Commit(t.Context(), map[plan.Key][]plan.Row{
		plan.SelectorKey("late5"): {plan.PortGroup{Name: "late5"}}, plan.SelectorKey("theirs"): {plan.PortGroup{Name: "theirs"}},
	})
	if len(errs) != 1 || errs[plan.SelectorKey("theirs")] == nil {
		t.Errorf("errors %v, want one of theirs", errs)
	}

	expect("after a refused transaction", "q", "late5")

	// Both are in one batch.
	fail("q", "late5 late6")

	q := plan.PodKey("ns", "q")
	commit(t, w.db, map[plan.Key][]plan.Row{
		plan.SelectorKey("late6"): {plan.PortGroup{Name: "late6"}},
		q:                         {plan.LogicalSwitchPort{Switch: "n", Name: "ns_q", Groups: []string{"late6"}}},
	})
	expect("the port and its group are in one batch", "q", "late6")

	fail("q", "late6 late7")
	commit(t, w.db, map[plan.Key][]plan.Row{
		plan.SelectorKey("late7"): {plan.PortGroup{Name: "late7"}},
		q:                         {plan.LogicalSwitchPort{Switch: "n", Name: "ns_q", Groups: []string{"late6"}}},
	})
	expect("the port does not need the group of its batch any more", "q", "late6")

	// Groups that only allow traffic are joined at the pace of CommitAndJoin.
	err := w.tryLimited("q", []plan.Row{plan.LogicalSwitchPort{
		Switch: "n", Name: "ns_q", Groups: []string{"late6", "late8", "open"}, Access: plan.Access{"open": {"ns"}},
	}})
	if err == nil {
		t.Error("the port does not wait for a group that isolates it")
	}

	w.create("open")
	expect("the group only allows traffic", "q", "late6")

	// Nothing is left of pods that end before they have a port.
	succeed("q", "")

	before := w.db.Isolating()

	fail("ended", "never")

	if err := w.tryLimited("ended", nil); err != nil || w.db.Isolating() != before {
		t.Errorf("error %v, ports wait for %d groups, want %d", err, w.db.Isolating(), before)
	}
}

// TestIsolation_manyPorts checks that a new group has 1,024 ports at once, and the others when
// their owners are committed again.
func TestIsolation_manyPorts(t *testing.T) {
	w := newGroupWorld(t)
	first, then := map[plan.Key][]plan.Row{}, map[plan.Key][]plan.Row{}

	for i := range 1030 {
		pod := fmt.Sprint("p", i)
		first[plan.PodKey("ns", pod)] = w.port(pod, "deny")
		then[plan.PodKey("ns", pod)] = []plan.Row{plan.LogicalSwitchPort{Switch: "n", Name: "ns_" + pod, Groups: []string{"late"}}}
	}

	commit(t, w.db, first)

	if errs := w.db.Commit(t.Context(), then); len(errs) != len(then) {
		t.Fatalf("%d of %d pods wait for the group", len(errs), len(then))
	}

	size := func() int {
		return len(strings.Fields(w.s.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name=late")))
	}

	w.create("late")

	if got := size(); got != 1024 {
		t.Errorf("the new group has %d ports, want 1024", got)
	}

	commit(t, w.db, then)

	if got := size(); got != 1030 {
		t.Errorf("then it has %d ports, want 1030", got)
	}
}

// TestIsolation_computesFlowsOnce checks that northd computes all logical flows once for a new
// policy of pods that exist, and not again for the pods.
func TestIsolation_computesFlowsOnce(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	db := open(t, ovn.Server)
	pods := map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): memberRows("n1", "p", 1), plan.PodKey("ns", "q"): memberRows("n2", "q", 2)}
	isolated := map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): memberRows("n1", "p", 1, "g"), plan.PodKey("ns", "q"): memberRows("n2", "q", 2, "g")}

	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n1"): switchRows("n1"), plan.NodeKey("n2"): switchRows("n2")})
	commit(t, db, pods)
	ovn.Sync()

	if errs := db.Commit(t.Context(), isolated); len(errs) != 2 {
		t.Fatalf("errors %v, want two", errs)
	}

	computations := func(want map[plan.Key][]plan.Row) int {
		t.Helper()
		ovn.ClearStats()
		commit(t, db, want)
		ovn.Sync()

		return ovn.FullFlowComputations()
	}

	group := map[plan.Key][]plan.Row{plan.SelectorKey("g"): {
		plan.PortGroup{Name: "g"},
		plan.ACL{Group: "g", Rule: "deny", Direction: "to-lport", Priority: 1000, Match: "outport == @g && ip", Action: "drop"},
	}}
	if n := computations(group); n != 1 {
		t.Errorf("the group: northd computed all flows %d times, want once", n)
	}

	if n := computations(isolated); n != 0 {
		t.Errorf("the pods: northd computed all flows %d times, want none", n)
	}
}
