package nb_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// switchRows returns the switch of a node with its placeholder.
func switchRows(node string) []plan.Row {
	return []plan.Row{plan.LogicalSwitch{Name: node}, plan.LogicalSwitchPort{Switch: node, Name: plan.PlaceholderPort(node)}}
}

// memberRows returns the port of a pod in these groups.
func memberRows(node, pod string, address int, groups ...string) []plan.Row {
	return []plan.Row{plan.LogicalSwitchPort{
		Switch: node, Name: "ns_" + pod, Groups: groups, Addresses: []string{fmt.Sprintf("02:00:00:00:00:%02x 10.244.0.%d", address, address)},
	}}
}

// membersOf returns the names of a group's ports, sorted.
func membersOf(t *testing.T, s *nbtest.Server, group string) string {
	t.Helper()

	var names []string
	for _, uuid := range strings.Fields(s.Nbctl("--bare", "--columns=ports", "find", "Port_Group", "name="+group)) {
		names = append(names, strings.TrimSpace(s.Nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port", uuid)))
	}

	slices.Sort(names)

	return strings.Join(names, " ")
}

// TestPlaceholder_keepsFlows checks that northd does not compute all logical flows again when the last
// pod of a node leaves a port group, or a pod joins it there again.
func TestPlaceholder_keepsFlows(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	db := open(t, ovn.Server)
	p, q, r := plan.PodKey("ns", "p"), plan.PodKey("ns", "q"), plan.PodKey("ns", "r")
	commit(t, db, map[plan.Key][]plan.Row{
		plan.NodeKey("n1"): switchRows("n1"), plan.NodeKey("n2"): switchRows("n2"),
		plan.SelectorKey("g"): {
			plan.PortGroup{Name: "g"},
			plan.ACL{Group: "g", Rule: "deny", Direction: "to-lport", Priority: 1000, Match: "outport == @g && ip", Action: "drop"},
		},
		p: memberRows("n1", "p", 1, "g"), q: memberRows("n2", "q", 2, "g"), r: memberRows("n2", "r", 3),
	})

	computations := func(key plan.Key, rows []plan.Row) int {
		t.Helper()
		ovn.Sync()
		ovn.ClearStats()
		commit(t, db, map[plan.Key][]plan.Row{key: rows})
		ovn.Sync()

		return ovn.FullFlowComputations()
	}

	if computations(r, memberRows("n2", "r", 3, "g")) > 0 || computations(r, memberRows("n2", "r", 3)) > 0 {
		t.Skip("this northd computes all flows when a group changes, also on switches where it has another port")
	}

	for _, step := range []struct {
		name string
		key  plan.Key
		rows []plan.Row
		want string // the members of g
	}{
		{"the last pod of a node leaves", q, memberRows("n2", "q", 2), "ns_p placeholder:n2"},
		{"it joins again", q, memberRows("n2", "q", 2, "g"), "ns_p ns_q placeholder:n2"},
		{"the last pod is deleted", q, nil, "ns_p placeholder:n2"},
		{"another pod joins", r, memberRows("n2", "r", 3, "g"), "ns_p ns_r placeholder:n2"},
		{"the last pod of the other node is deleted", p, nil, "ns_r placeholder:n1 placeholder:n2"},
	} {
		if n := computations(step.key, step.rows); n != 0 {
			t.Errorf("%s: northd computed all flows %d times", step.name, n)
		}

		if got := membersOf(t, ovn.Server, "g"); got != step.want {
			t.Errorf("%s: the group has %q, want %q", step.name, got, step.want)
		}
	}

	// The test can fail: without placeholders, northd computes all flows.
	if err := db.RemovePlaceholders(t.Context()); err != nil {
		t.Fatal(err)
	}

	if n := computations(p, memberRows("n1", "p", 1, "g")); n == 0 {
		t.Error("northd did not compute all flows for the first port on a switch: placeholders are of no use")
	}
}

// TestPlaceholder_members checks when placeholders join port groups, and when they leave.
func TestPlaceholder_members(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	pod := func(name string) plan.Key { return plan.PodKey("ns", name) }
	group := func(name string) []plan.Row { return []plan.Row{plan.PortGroup{Name: name}} }
	expect := func(name, want string, groups ...string) {
		t.Helper()

		var got []string
		for _, g := range groups {
			got = append(got, g+": "+membersOf(t, s, g))
		}

		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %q, want %q", name, text, want)
		}
	}

	n1, n2 := plan.NodeKey("n1"), plan.NodeKey("n2")
	commit(t, db, map[plan.Key][]plan.Row{
		n1: switchRows("n1"), n2: switchRows("n2"), plan.SelectorKey("g"): group("g"), plan.SelectorKey("h"): group("h"),
		pod("a"): memberRows("n1", "a", 1, "g", "h"), pod("b"): memberRows("n1", "b", 2, "g"), pod("c"): memberRows("n2", "c", 3, "g"),
	})

	commit(t, db, map[plan.Key][]plan.Row{pod("a"): nil})
	expect("another pod of the node is left", "g: ns_b ns_c, h: placeholder:n1", "g", "h")

	commit(t, db, map[plan.Key][]plan.Row{pod("d"): memberRows("n1", "d", 4, "g")})
	commit(t, db, map[plan.Key][]plan.Row{pod("b"): nil, pod("d"): nil})
	expect("the last two leave together", "g: ns_c placeholder:n1", "g")

	transactions := db.Stats().Transactions

	commit(t, db, map[plan.Key][]plan.Row{n1: switchRows("n1")})

	if n := db.Stats().Transactions - transactions; n != 0 {
		t.Errorf("the node is committed again: %d transactions, want none", n)
	}

	expect("the node is committed again", "g: ns_c placeholder:n1, h: placeholder:n1", "g", "h")

	commit(t, db, map[plan.Key][]plan.Row{pod("c"): nil, plan.SelectorKey("g"): nil})
	expect("the group is deleted together with its last pod", "g: , h: placeholder:n1", "g", "h")

	commit(t, db, map[plan.Key][]plan.Row{pod("e"): memberRows("n2", "e", 5, "h")})
	s.Nbctl("pg-add", "theirs", "ns_e")
	commit(t, db, map[plan.Key][]plan.Row{pod("e"): nil, n2: nil})
	expect("the node is deleted together with its last pod", "h: placeholder:n1, theirs: ", "h", "theirs")

	commit(t, db, map[plan.Key][]plan.Row{pod("f"): memberRows("n1", "f", 6)})
	s.Nbctl("pg-set-ports", "theirs", "ns_f")
	commit(t, db, map[plan.Key][]plan.Row{pod("f"): nil})
	expect("the last pod leaves a group of another client", "theirs: ", "theirs")
}

// TestPlaceholder_largeGroup checks a group with more pods than the switch has ports.
func TestPlaceholder_largeGroup(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	want := map[plan.Key][]plan.Row{
		plan.NodeKey("n1"): switchRows("n1"), plan.NodeKey("n2"): switchRows("n2"), plan.SelectorKey("g"): {plan.PortGroup{Name: "g"}},
	}

	for i := range 9 {
		want[plan.PodKey("ns", fmt.Sprint("many", i))] = memberRows("n1", fmt.Sprint("many", i), 10+i, "g")
	}

	x, y := plan.PodKey("ns", "x"), plan.PodKey("ns", "y")
	want[x], want[y] = memberRows("n2", "x", 1, "g"), memberRows("n2", "y", 2, "g")
	commit(t, db, want)

	commit(t, db, map[plan.Key][]plan.Row{x: nil})

	if got := membersOf(t, s, "g"); strings.Contains(got, "placeholder") {
		t.Errorf("a placeholder joined although a pod is left: %q", got)
	}

	commit(t, db, map[plan.Key][]plan.Row{y: memberRows("n2", "y", 2)})

	if got := membersOf(t, s, "g"); !strings.HasSuffix(got, "placeholder:n2") || strings.Contains(got, "placeholder:n1") {
		t.Errorf("after the last pod of n2 has left, the group has %q", got)
	}
}

// TestDB_RemovePlaceholders checks that all placeholders leave their groups without a notification of
// their owners, and that a leader whose term is over removes none.
func TestDB_RemovePlaceholders(t *testing.T) {
	s := nbtest.Start(t)
	changed := make(chan plan.Key, 100)
	db := nb.New([]string{s.Endpoint}, slog.New(slog.DiscardHandler))
	db.OnChange(func(k plan.Key) { changed <- k })
	run(t, db)

	pod := plan.PodKey("ns", "p")
	commit(t, db, map[plan.Key][]plan.Row{
		plan.NodeKey("n1"): switchRows("n1"), plan.SelectorKey("g"): {plan.PortGroup{Name: "g"}}, plan.SelectorKey("h"): {plan.PortGroup{Name: "h"}},
		pod: memberRows("n1", "p", 1, "g", "h"),
	})
	commit(t, db, map[plan.Key][]plan.Row{pod: memberRows("n1", "p", 1, "h")})
	commit(t, db, map[plan.Key][]plan.Row{pod: memberRows("n1", "p", 1)})

	if got := membersOf(t, s, "g") + membersOf(t, s, "h"); got != "placeholder:n1placeholder:n1" {
		t.Fatalf("the groups have %q", got)
	}

	if err := db.RemovePlaceholders(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := membersOf(t, s, "g") + membersOf(t, s, "h"); got != "" {
		t.Errorf("the groups have %q, want no ports", got)
	}

	before := db.Stats().Transactions
	if err := db.RemovePlaceholders(t.Context()); err != nil || db.Stats().Transactions != before {
		t.Errorf("without placeholders in groups: %v, %d transactions, want none", err, db.Stats().Transactions-before)
	}

	// The pod was notified when it left the groups. A change by another client comes after all of these.
	s.Nbctl("lsp-set-addresses", "ns_p", "router")
	nbtest.Eventually(t, "the last notification", func() bool { return len(changed) > 0 })

	for len(changed) > 0 {
		if k := <-changed; k != pod {
			t.Errorf("%s was notified of its placeholder", k)
		}
	}

	commit(t, db, map[plan.Key][]plan.Row{pod: memberRows("n1", "p", 1, "g")})

	for _, leader := range []*nb.DB{db, open(t, s)} {
		if _, err := leader.Claim(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}

		if leader == db {
			commit(t, db, map[plan.Key][]plan.Row{pod: memberRows("n1", "p", 1)})
		}
	}

	if err := db.RemovePlaceholders(t.Context()); !errors.Is(err, nb.ErrFenced) || membersOf(t, s, "g") != "placeholder:n1" {
		t.Errorf("of a former leader: %v, the group has %q", err, membersOf(t, s, "g"))
	}
}
