package nb

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestJoins_take checks that the namespaces take turns, also from one call to the next, and that each
// group is taken once.
func TestJoins_take(t *testing.T) {
	var j joins

	j.set(laterJoins{port: "p", groups: plan.Access{
		"m1": {"many"}, "m2": {"many"}, "m3": {"many"}, "m4": {"many"},
		"shared": {"few", "many", "other"}, "o1": {"other"},
	}})

	for _, want := range []string{"shared m1", "o1 m2", "m3 m4", ""} {
		var names []string

		for _, join := range j.take(2, 1000) {
			names = append(names, join.group)
			j.done(join)
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("took %q, want %q", got, want)
		}
	}

	if len(j.groups)+len(j.ports) > 0 {
		t.Errorf("left: %v, %v", j.groups, j.ports)
	}
}

// TestJoins_take_ports checks that many ports join a group in several turns, those that have waited
// longest first, and that a call ends when it has enough ports.
func TestJoins_take_ports(t *testing.T) {
	var j joins

	for i := range 2*portsPerTurn + 1 {
		j.set(laterJoins{port: fmt.Sprint("p", 1000-i), groups: plan.Access{"large": {"a"}, "larger": {"a"}}})
	}

	j.set(laterJoins{port: "p", groups: plan.Access{"small": {"b"}, "larger": {"a"}}})

	var got []string

	for range 5 {
		for _, join := range j.take(10, portsPerTurn+1) {
			got = append(got, fmt.Sprintf("%s %d %s", join.group, len(join.ports), join.ports[0].name))
			j.done(join)
		}
	}

	want := []string{
		"large 64 p1000", "small 1 p", "large 64 p936", "larger 64 p1000", "large 1 p872", "larger 64 p936", "larger 2 p872",
	}
	if !slices.Equal(got, want) {
		t.Errorf("took %q, want %q", got, want)
	}
}

// TestJoins_set checks that a port keeps its place in a group while it waits, and that one which comes and
// goes has a place behind the others and does not make the group larger.
func TestJoins_set(t *testing.T) {
	var j joins

	only := plan.Access{"g": {"a"}}
	order := func() string {
		var names []string
		for _, p := range j.groups["g"].first(10) {
			names = append(names, p.name)
		}

		return strings.Join(names, " ")
	}

	for _, port := range []string{"p", "q", "p", "r"} {
		j.set(laterJoins{port: port, groups: only})
	}

	if got := order(); got != "p q r" {
		t.Errorf("order %q, want p q r", got)
	}

	for range 1000 {
		j.remove("q")
		j.set(laterJoins{port: "q", groups: plan.Access{"g": {"a"}, "h": {"a"}}})
	}

	if got := order(); got != "p r q" || len(j.groups["g"].order) > 4*portsPerTurn {
		t.Errorf("order %q, of %d, want p r q", got, len(j.groups["g"].order))
	}

	for _, port := range []string{"p", "q", "r"} {
		j.remove(port)
	}

	if len(j.groups)+len(j.ports) > 0 || j.count.Load() != 0 {
		t.Errorf("left: %v, %v", j.groups, j.ports)
	}
}
