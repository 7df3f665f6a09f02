package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// policyTurnsTest has the turns of a test, in which a key's units are those of cost.
type policyTurnsTest struct {
	policyTurns
	cost map[string]int // by namespace; 1 if missing
}

func newPolicyTurnsTest(cost map[string]int) *policyTurnsTest {
	return &policyTurnsTest{newPolicyTurns(func(k plan.Key) string { return k.Namespace }), cost}
}

func (t *policyTurnsTest) pushAll(namespace string, names ...string) {
	for _, name := range names {
		t.push(plan.PolicyKey(namespace, name))
	}
}

// popAll takes n keys, charges their units, and returns them in order.
func (t *policyTurnsTest) popAll(n int) string {
	var out []string

	for range n {
		k := t.pop()
		t.charge(k, t.cost[k.Namespace])
		out = append(out, k.Namespace+"/"+k.Name)
	}

	return strings.Join(out, " ")
}

// TestPolicyTurns_leastUnitsFirst checks that a namespace with small policies has more turns than one
// with large ones, and that the keys of a namespace keep their order.
func TestPolicyTurns_leastUnitsFirst(t *testing.T) {
	turns := newPolicyTurnsTest(map[string]int{"large": 3})
	turns.pushAll("large", "1", "2", "3")
	turns.pushAll("small", "1", "2", "3", "4")

	want := "large/1 small/1 small/2 small/3 large/2 small/4 large/3"
	if got := turns.popAll(7); got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}

// TestPolicyTurns_newNamespace checks that a namespace without keys neither saves up turns nor keeps
// paying for what was written long ago.
func TestPolicyTurns_newNamespace(t *testing.T) {
	turns := newPolicyTurnsTest(map[string]int{"busy": 10, "once": 25})
	turns.pushAll("once", "1")
	turns.pushAll("busy", "1", "2", "3", "4", "5", "6", "7")
	turns.popAll(4)            // busy/1, once/1, busy/2, busy/3
	turns.pushAll("once", "2") // it has 25 units, and busy 30
	turns.pushAll("new", "1", "2")

	// new begins at the 20 units that busy had before its last turn.
	want := "new/1 new/2 once/2 busy/4 busy/5 busy/6 busy/7"

	turns.cost["new"] = 2
	if got := turns.popAll(7); got != want {
		t.Errorf("took %q, want %q", got, want)
	}

	turns.pushAll("busy", "8")
	turns.popAll(1)

	if n := len(turns.written); n != 1 {
		t.Errorf("units of %d namespaces are kept, want those of busy: %v", n, turns.written)
	}
}

// TestPolicyTurns_freeKeys checks that namespaces take turns also if nothing is written for their keys.
func TestPolicyTurns_freeKeys(t *testing.T) {
	turns := newPolicyTurnsTest(nil)

	for n := range 3 {
		for _, namespace := range []string{"a", "b"} {
			turns.pushAll(namespace, fmt.Sprint(n))
		}
	}

	if got, want := turns.popAll(6), "a/0 b/0 a/1 b/1 a/2 b/2"; got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}
