package nb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// groupWorld is a database with a switch and port groups.
type groupWorld struct {
	t  *testing.T
	s  *nbtest.Server
	db *nb.DB
}

func newGroupWorld(t *testing.T) groupWorld {
	s := nbtest.Start(t)
	w := groupWorld{t, s, open(t, s)}

	rows := []plan.Row{plan.LogicalSwitch{Name: "n"}}
	for _, name := range []string{"deny", "a", "b", "c", "d"} {
		rows = append(rows, plan.PortGroup{Name: name})
	}

	commit(t, w.db, map[plan.Key][]plan.Row{plan.ClusterKey(): rows})

	return w
}

// port returns the port of a pod in these groups, separated by spaces. All but "deny" only allow
// traffic.
func (w groupWorld) port(pod, groups string) []plan.Row {
	names := strings.Fields(groups)
	access := plan.Access{}

	for _, name := range names {
		if name != "deny" {
			access[name] = []string{"ns"}
		}
	}

	return []plan.Row{plan.LogicalSwitchPort{Switch: "n", Name: "ns_" + pod, Groups: names, Access: access}}
}

// within commits the rows with an allowance. The pods in relabelled count.
func (w groupWorld) within(left float64, want map[plan.Key][]plan.Row, relabelled ...string) *nb.Allowance {
	w.t.Helper()

	a := &nb.Allowance{Left: left, Relabelled: map[plan.Key]struct{}{}}
	for _, pod := range relabelled {
		a.Relabelled[plan.PodKey("ns", pod)] = struct{}{}
	}

	allowed := map[plan.Key]*nb.Allowance{}
	for k := range want {
		allowed[k] = a
	}

	if errs := w.db.CommitWithin(w.t.Context(), want, allowed); len(errs) > 0 {
		w.t.Fatalf("CommitWithin: %v", errs)
	}

	return a
}

// groups returns the groups of a pod in the database, sorted.
func (w groupWorld) groups(pod string) string {
	w.t.Helper()

	uuid := w.s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=ns_"+pod)
	names := strings.Fields(w.s.Nbctl("--bare", "--columns=name", "find", "Port_Group", "ports{>=}"+uuid))
	slices.Sort(names)

	return strings.Join(names, " ")
}

// TestCommitWithin_groups checks that a pod with other labels joins only as many port groups as the
// allowance permits, but always joins those that isolate it, and always leaves groups.
func TestCommitWithin_groups(t *testing.T) {
	w := newGroupWorld(t)
	pod := plan.PodKey("ns", "p")
	commit(t, w.db, map[plan.Key][]plan.Row{plan.PodKey("ns", "other"): w.port("other", "deny a")})

	for _, step := range []struct {
		name       string
		left       float64
		planned    string
		relabelled bool
		want       string
		wantLeft   float64
	}{
		{"a new pod", 0, "deny a", false, "a deny", 0},
		{"other labels, without an allowance", 0, "deny a b c", true, "a deny", 0},
		{"with an allowance for two groups", 7, "deny a b c d", true, "a b c deny", 7 - 2*6},
		{"for the rest", 6, "deny a b c d", true, "a b c d deny", 0},
		{"nothing changes", 0, "deny a b c d", true, "a b c d deny", 0},
		{"access is removed without an allowance", 0, "deny", true, "deny", -4 * 6},
		{"isolation is removed", 0, "", true, "", -6},
		{"isolation is added without an allowance", 0, "deny a", true, "deny", -6},
	} {
		var relabelled []string
		if step.relabelled {
			relabelled = append(relabelled, "p")
		}

		a := w.within(step.left, map[plan.Key][]plan.Row{pod: w.port("p", step.planned)}, relabelled...)
		if got := w.groups("p"); got != step.want || a.Left != step.wantLeft {
			t.Errorf("%s: in groups %q, %g units left, want %q, %g", step.name, got, a.Left, step.want, step.wantLeft)
		}

		names := strings.Fields(step.planned)
		slices.Sort(names)

		if _, isHeld := a.Held[pod]; isHeld != (strings.Join(names, " ") != step.want) {
			t.Errorf("%s: held %v", step.name, a.Held)
		}
	}

	want := map[plan.Key][]plan.Row{pod: w.port("p", "deny a")}
	w.within(100, want, "p")

	dump := w.s.Dump()

	commit(t, w.db, want)

	if diff := cmp.Diff(dump, w.s.Dump()); diff != "" {
		t.Errorf("not as planned (-has +wants):\n%s", diff)
	}
}

// TestCommitWithin_groupsOfManyPods checks that a port group costs the same for one pod as for many
// in one commit.
func TestCommitWithin_groupsOfManyPods(t *testing.T) {
	w := newGroupWorld(t)

	first, then := map[plan.Key][]plan.Row{}, map[plan.Key][]plan.Row{}

	var names []string

	for i := range 20 {
		name := fmt.Sprint("p", i)
		names = append(names, name)
		first[plan.PodKey("ns", name)] = w.port(name, "deny")
		then[plan.PodKey("ns", name)] = w.port(name, "deny a")
	}

	w.within(0, first)

	if a := w.within(1, then, names...); a.Left != 1-6 || len(a.Held) > 0 {
		t.Errorf("%g units left, held %v, want %d and none", a.Left, a.Held, 1-6)
	}

	if got := w.groups("p19"); got != "a deny" {
		t.Errorf("in groups %q, want a and deny", got)
	}
}

// TestCommit_pendingGroups checks that a port is written before port groups that only allow traffic,
// and joins them when they exist, but waits for those that isolate it.
func TestCommit_pendingGroups(t *testing.T) {
	w := newGroupWorld(t)
	pod := plan.PodKey("ns", "p")

	for _, step := range []struct {
		name, planned string
		access        plan.Access
		others        []plan.Row // committed by another key in the same transaction
		want          string     // groups of the port; "" is no port
		err           string
	}{
		{"an isolating group", "deny late1", nil, nil, "", `refer to Port_Group "late1": no such row`},
		{"one that only allows", "deny a late1", plan.Access{"a": {"ns"}, "late1": {"ns"}}, nil, "a deny", `join port group "late1": not written yet`},
		{"the same again", "deny a late1", plan.Access{"a": {"ns"}, "late1": {"ns"}}, nil, "a deny", `join port group "late1": not written yet`},
		{"of two, the one that exists", "deny b late1", plan.Access{"b": {"ns"}, "late1": {"ns"}}, nil, "b deny", `join port group "late1": not written yet`},
		{"an isolating one of an existing port", "deny b late2", plan.Access{"b": {"ns"}}, nil, "b deny", `refer to Port_Group "late2": no such row`},
		{"written by the same commit", "deny late1", plan.Access{"late1": {"ns"}}, []plan.Row{plan.PortGroup{Name: "late1"}}, "deny late1", ""},
	} {
		rows := []plan.Row{plan.LogicalSwitchPort{Switch: "n", Name: "ns_p", Groups: strings.Fields(step.planned), Access: step.access}}
		want := map[plan.Key][]plan.Row{pod: rows}

		if step.others != nil {
			want[plan.PolicyKey("ns", "others")] = step.others
		}

		var text string
		if err := w.db.Commit(t.Context(), want)[pod]; err != nil {
			text = err.Error()
		}

		if text != step.err {
			t.Errorf("%s: error %q, want %q", step.name, text, step.err)
		}

		if w.s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "name=ns_p") == "" {
			if step.want != "" {
				t.Errorf("%s: the port is not written", step.name)
			}

			continue
		}

		if got := w.groups("p"); got != step.want {
			t.Errorf("%s: in groups %q, want %q", step.name, got, step.want)
		}
	}
}
