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

// commitLimited commits the rows of a pod with allowances.
func (w groupWorld) commitLimited(pod string, rows []plan.Row) {
	w.t.Helper()

	if errs := w.db.CommitWithin(w.t.Context(), map[plan.Key][]plan.Row{plan.PodKey("ns", pod): rows}, map[plan.Key]*nb.Allowance{}); len(errs) > 0 {
		w.t.Fatalf("CommitWithin: %v", errs)
	}
}

// TestJoin checks which port groups a pod joins at once, and that it joins the others by Join, and only
// if it still needs them.
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

		if again, err := w.db.Join(t.Context(), n, 1000); err != nil || len(again) > 0 {
			t.Fatalf("Join: %v, %v", again, err)
		}
	}

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

	if _, err := w.db.Join(t.Context(), 10, 1000); !errors.Is(err, nb.ErrFenced) {
		t.Errorf("Join after another leader has begun: %v", err)
	}

	expect("another leader has begun", "r", "deny", w.db.Joining())
}

// TestJoin_ownGroups checks that a new pod joins 16 groups of its own namespace at once.
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

	commit(t, w.db, map[plan.Key][]plan.Row{plan.PolicyKey("ns", "own"): groups})
	w.commitLimited("p", w.foreign("p", text))

	if got := len(strings.Fields(w.groups("p"))); got != 1+16 || w.db.Joining() != 4 {
		t.Errorf("the pod is in %d groups, and %d are left to join, want 17 and 4", got, w.db.Joining())
	}
}
