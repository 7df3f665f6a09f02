package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestFairQueue checks the order in which keys of several namespaces are taken.
func TestFairQueue(t *testing.T) {
	q := &fairQueue{}
	push := func(namespace string, names ...string) {
		for _, name := range names {
			q.Push(plan.PodKey(namespace, name))
		}
	}
	pop := func(n int) string {
		var out []string

		for range n {
			k := q.Pop()
			out = append(out, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"))
		}

		return strings.Join(out, " ")
	}

	push("many", "1", "2", "3", "4")
	push("few", "1")

	if got, want := pop(2), "many/1 few/1"; got != want {
		t.Errorf("took %q, want %q", got, want)
	}

	push("few", "2")
	push("late", "1", "2")

	if got, want := pop(6), "many/2 few/2 late/1 many/3 late/2 many/4"; got != want {
		t.Errorf("took %q, want %q", got, want)
	}

	if q.Len() != 0 || len(q.of) > 0 || len(q.turns) > 0 {
		t.Errorf("an empty queue has %d keys, %v", q.Len(), q)
	}

	for i := range clusterTurn + 2 {
		push("", fmt.Sprint(i))
	}

	push("a", "1", "2", "3")

	if got, want := pop(clusterTurn+5), "0 1 2 3 4 5 6 7 a/1 8 9 a/2 a/3"; got != want {
		t.Errorf("took %q, want %q", got, want)
	}
}
