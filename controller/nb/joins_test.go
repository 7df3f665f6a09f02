package nb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// foreign returns the port of a pod in the group "deny" and in these groups, separated by spaces. The
// namespaces of the policies that use a group follow its name, after a colon each.
func (w groupWorld) foreign(pod, groups string) []plan.Row {
	port := plan.LogicalSwitchPort{Switch: "n", Name: "ns_" + pod, Groups: []string{"deny"}, Access: plan.Access{}}

	for group := range strings.FieldsSeq(groups) {
		name, namespaces, _ := strings.Cut(group, ":")
		port.Groups = append(port.Groups, name)
		port.Access[name] = strings.Split(namespaces, ":")
	}

	return []plan.Row{port}
}

// tryLimited commits the rows of a pod with allowances, and returns the pod's error.
func (w groupWorld) tryLimited(pod string, rows []plan.Row) error {
	k := plan.PodKey("ns", pod)
	return w.db.CommitWithin(w.t.Context(), map[plan.Key][]plan.Row{k: rows}, map[plan.Key]*nb.Allowance{})[k]
}

// commitLimited is tryLimited without an error.
func (w groupWorld) commitLimited(pod string, rows []plan.Row) {
	w.t.Helper()

	if err := w.tryLimited(pod, rows); err != nil {
		w.t.Fatalf("CommitWithin: %v", err)
	}
}

// TestJoin checks which port groups a pod joins at once, and that it joins the others by
// CommitAndJoin, and only if it still needs them.
func TestJoin(t *testing.T) {
	w := newGroupWorld(t)
	expect := func(name, pod, groups string, left int) {
		t.Helper()

		if got := w.groups(pod); got != groups || w.db.Joining() != left {
			t.Errorf("%s: %s is in %q, and %d groups are left to join, want %q, %d", name, pod, got, w.db.Joining(), groups, left)
		}
	}
	join := func(n int) {
		t.Helper()

		if errs, again, err := w.db.CommitAndJoin(t.Context(), nil, n, 1000); err != nil || len(errs)+len(again) > 0 {
			t.Fatalf("CommitAndJoin: %v, %v, %v", errs, again, err)
		}
	}

	commit(t, w.db, map[plan.Key][]plan.Row{plan.PodKey("ns", "o"): w.foreign("o", "a:ns c:ns")})
	w.commitLimited("p", w.foreign("p", "a:ns b:x c:ns:x d:y"))
	expect("a new pod", "p", "a c deny", 2)

	w.commitLimited("q", w.foreign("q", "b:x"))
	expect("a second one", "q", "deny", 2)

	join(1)
	expect("one group, with both pods", "p", "a b c deny", 1)
	expect("one group, with both pods", "q", "b deny", 1)

	join(10)
	expect("the rest", "p", "a b c d deny", 0)

	w.commitLimited("p", w.foreign("p", "a:ns"))
	expect("it leaves groups at once", "p", "a deny", 0)

	w.commitLimited("p", w.foreign("p", "a:ns b:x c:ns d:y"))
	expect("new policies, also of its own namespace", "p", "a deny", 3)

	w.commitLimited("p", w.foreign("p", "a:ns d:y"))
	expect("it does not need some any more", "p", "a deny", 1)

	commit(t, w.db, map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): w.foreign("p", "a:ns b:x d:y")})
	expect("without a limit", "p", "a b d deny", 0)

	w.commitLimited("q", w.foreign("q", "b:x c:x d:y"))
	commit(t, w.db, map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): w.foreign("p", "")})
	commit(t, w.db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LogicalSwitch{Name: "n"}, plan.PortGroup{Name: "deny"}, plan.PortGroup{Name: "b"}, plan.PortGroup{Name: "d"}}})
	join(10)
	expect("a group has disappeared", "q", "b d deny", 0)

	w.commitLimited("r", w.foreign("r", "b:x d:y"))
	w.commitLimited("r", nil)
	expect("the pod is deleted", "q", "b d deny", 0)

	w.commitLimited("r", w.foreign("r", "b:x d:y"))

	if _, err := w.db.Claim(t.Context(), "this"); err != nil {
		t.Fatal(err)
	}

	expect("a term has begun", "r", "deny", 0)

	w.commitLimited("r", w.foreign("r", "b:x d:y"))

	if _, err := open(t, w.s).Claim(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}

	if _, _, err := w.db.CommitAndJoin(t.Context(), nil, 10, 1000); !errors.Is(err, nb.ErrFenced) {
		t.Errorf("CommitAndJoin after another leader has begun: %v", err)
	}

	expect("another leader has begun", "r", "deny", 2)
}

// TestJoin_ownGroups checks that a new pod joins 16 groups of its own namespace at once, and only
// those that have a port on its switch: the first port on a switch costs northd more.
func TestJoin_ownGroups(t *testing.T) {
	w := newGroupWorld(t)

	var (
		groups []plan.Row
		text   string
	)

	for i := range 20 {
		groups = append(groups, plan.PortGroup{Name: fmt.Sprint("own", i)})
		text += fmt.Sprintf("own%d:ns ", i)
	}

	commit(t, w.db, map[plan.Key][]plan.Row{plan.PolicyKey("ns", "own"): groups, plan.NodeKey("m"): {plan.LogicalSwitch{Name: "m"}}})
	w.commitLimited("first", w.foreign("first", text))

	if got := w.groups("first"); got != "deny" || w.db.Joining() != 20 {
		t.Errorf("the first pod is in groups %q, and %d are left to join, want deny and 20", got, w.db.Joining())
	}

	if errs, again, err := w.db.CommitAndJoin(t.Context(), nil, 20, 20); err != nil || len(errs)+len(again) > 0 {
		t.Fatalf("CommitAndJoin: %v, %v, %v", errs, again, err)
	}

	w.commitLimited("p", w.foreign("p", text))

	if got := len(strings.Fields(w.groups("p"))); got != 1+16 || w.db.Joining() != 4 {
		t.Errorf("the pod is in %d groups, and %d are left to join, want 17 and 4", got, w.db.Joining())
	}

	elsewhere, _ := w.foreign("elsewhere", text)[0].(plan.LogicalSwitchPort)
	elsewhere.Switch = "m"
	w.commitLimited("elsewhere", []plan.Row{elsewhere})

	if got := w.groups("elsewhere"); got != "deny" || w.db.Joining() != 20 {
		t.Errorf("the pod on another switch is in groups %q, and %d are left to join, want deny and 20", got, w.db.Joining())
	}
}

// TestCommitAndJoin checks that rows and joins are one transaction. If the database refuses it, the rows
// and the joins that are not the cause are written.
func TestCommitAndJoin(t *testing.T) {
	w := newGroupWorld(t)
	policy := func(name string) plan.Key { return plan.PolicyKey("ns", name) }
	group := func(name string) []plan.Row { return []plan.Row{plan.PortGroup{Name: name}} }

	w.commitLimited("p", w.foreign("p", "a:x b:y"))

	before := w.db.Stats().Transactions

	errs, again, err := w.db.CommitAndJoin(t.Context(), map[plan.Key][]plan.Row{policy("e"): group("e")}, 10, 1000)
	if n := w.db.Stats().Transactions - before; n != 1 || err != nil || len(errs)+len(again) > 0 {
		t.Errorf("%d transactions, %v, %v, %v, want 1 and no error", n, errs, again, err)
	}

	if got := w.groups("p"); got != "a b deny" || w.db.Joining() != 0 || !w.hasGroup("e") {
		t.Errorf("the pod is in groups %q, %d are left, and group e exists: %t", got, w.db.Joining(), w.hasGroup("e"))
	}

	// Group names are unique, so the row of another client refuses the group "theirs".
	w.s.Nbctl("pg-add", "theirs")
	w.commitLimited("q", w.foreign("q", "a:x b:y"))

	errs, again, err = w.db.CommitAndJoin(t.Context(), map[plan.Key][]plan.Row{policy("bad"): group("theirs"), policy("f"): group("f")}, 10, 1000)
	if err != nil || len(again) > 0 || len(errs) != 1 || errs[policy("bad")] == nil {
		t.Errorf("with a row that is refused: %v, %v, %v, want an error of one key", errs, again, err)
	}

	if got := w.groups("q"); got != "a b deny" || w.db.Joining() != 0 || !w.hasGroup("f") {
		t.Errorf("the pod is in groups %q, %d are left, and group f exists: %t", got, w.db.Joining(), w.hasGroup("f"))
	}
}

// hasGroup reports whether the database has the port group.
func (w groupWorld) hasGroup(name string) bool {
	return w.s.Nbctl("--bare", "--columns=name", "find", "Port_Group", "name="+name) != ""
}
