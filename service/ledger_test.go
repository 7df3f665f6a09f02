package service

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

type asked struct {
	Owner
	units Units
}

func owner(namespace, name string, age int, uid string) Owner {
	return Owner{Key{KindService, namespace, name}, time.Unix(int64(age), 0), types.UID(uid)}
}

// decide is the rule of a Ledger, applied to all objects at once. It returns the reason of each
// object that is not served.
func decide(b Budget, all map[Key]asked) map[Key]verdict {
	order := slices.SortedFunc(maps.Values(all), func(x, y asked) int {
		return (&entry{Owner: x.Owner}).compare(&entry{Owner: y.Owner})
	})
	out := map[Key]verdict{}
	// admit lets the first objects in that the limit has room for.
	admit := func(objects []asked, limit Units, else_ verdict) (in []asked, used Units) {
		for i, o := range objects {
			if !used.plus(o.units).within(limit) {
				for _, o := range objects[i:] {
					out[o.Key] = else_
				}

				return objects[:i], used
			}

			used = used.plus(o.units)
		}

		return objects, used
	}
	byNamespace := map[string][]asked{}

	for _, o := range order {
		if o.units.within(b.Namespace) {
			byNamespace[o.Namespace] = append(byNamespace[o.Namespace], o)
		} else {
			out[o.Key] = oversized
		}
	}

	within := map[Key]bool{}

	for _, objects := range byNamespace {
		in, _ := admit(objects, b.Namespace, outOfSpace)
		for _, o := range in {
			within[o.Key] = true
		}
	}

	var first, rest []asked

	for _, o := range order {
		switch {
		case !within[o.Key]:
		case o.Namespace == "default" || o.Namespace == "kube-system":
			first = append(first, o)
		default:
			rest = append(rest, o)
		}
	}

	_, used := admit(first, b.Total, outOfTotal)
	admit(rest, b.Total.minus(used.most(b.Reserve)), outOfTotal)

	return out
}

// TestLedger_dependsOnObjectsAlone adds, changes, recreates and deletes objects at random. After
// each change the Ledger must have the decisions that the rule gives for the objects alone, and
// must have named every object whose decision changed.
func TestLedger_dependsOnObjectsAlone(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[verdict]int{}

	for range 15 {
		namespace := 20 + r.IntN(40)
		b := Budget{Namespace: Units{namespace, 2 * namespace, namespace, namespace, 2 * namespace}, Total: Units{100, 200, 60, 60, 300}, Reserve: Units{10, 20, 6, 6, 30}}
		l, all, told := NewLedger(b), map[Key]asked{}, map[Key]verdict{}

		for step := range 400 {
			names := []string{"default", "kube-system", "a", "b", "c", "d"}

			o := asked{owner(names[r.IntN(len(names))], fmt.Sprint(r.IntN(8)), r.IntN(6), fmt.Sprint(r.IntN(4))), Units{r.IntN(14), r.IntN(24), r.IntN(8), r.IntN(8), r.IntN(32)}}
			if old, ok := all[o.Key]; ok && r.IntN(2) == 0 { // not recreated
				o.Owner = old.Owner
			}

			if r.IntN(40) == 0 {
				o.units.Backends = 1000
			}

			var changed []Key

			if r.IntN(3) == 0 {
				delete(all, o.Key)
				delete(told, o.Key)
				changed = l.Delete(o.Key)
			} else {
				all[o.Key] = o
				changed = append(l.Set(o.Owner, o.units), o.Key)
			}

			want := decide(b, all)
			for _, k := range changed {
				if v, refused := want[k]; refused {
					told[k] = v
				} else {
					delete(told, k)
				}
			}

			got := map[Key]verdict{}

			for k, e := range l.entries {
				if (l.Refused(k) == nil) != (e.verdict == fitsBudgets) {
					t.Fatalf("step %d: %s is refused for %v, verdict %d", step, k, l.Refused(k), e.verdict)
				}

				if e.verdict != fitsBudgets {
					got[k] = e.verdict
				}

				seen[e.verdict]++
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("step %d: not served (-by the rule +got):\n%s", step, diff)
			}

			if diff := cmp.Diff(want, told); diff != "" {
				t.Fatalf("step %d: not served (-by the rule +as told by the changes):\n%s", step, diff)
			}

			if l.Len() != len(all) || len(l.first.entries)+len(l.rest.entries) > len(all) {
				t.Fatalf("step %d: %d objects, want %d", step, l.Len(), len(all))
			}
		}

		for k := range all {
			l.Delete(k)
		}

		if l.Len()+len(l.namespaces)+len(l.first.entries)+len(l.rest.entries) != 0 || l.first.used != (Units{}) || l.rest.used != (Units{}) {
			t.Fatalf("after all are deleted: %+v", l)
		}
	}

	for _, v := range []verdict{oversized, outOfSpace, outOfTotal, fitsBudgets} {
		if seen[v] < 50 {
			t.Errorf("verdict %d was seen %d times", v, seen[v])
		}
	}
}

// TestLedger_changesAreLocal checks that a change names no object of another namespace while the
// total has room, and that it looks at few others even in a full cluster.
func TestLedger_changesAreLocal(t *testing.T) {
	b := Budget{Namespace: Units{Frontends: 100}, Total: Units{Frontends: 10_000}}
	l := NewLedger(b)

	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	for i := range 200 { // in order of age: the first half is served
		for j := range 10 {
			l.Set(owner(name(i), fmt.Sprint(j), 10*i+j, ""), Units{Frontends: 10})
		}
	}

	served := func(i int) bool { return l.Refused(Key{KindService, name(i), "9"}) == nil }
	if !served(99) || served(100) {
		t.Fatalf("namespace 99 is served: %t, namespace 100: %t", served(99), served(100))
	}

	if changed := l.Delete(Key{KindService, name(3), "0"}); len(changed) != 1 || changed[0].Namespace != name(100) {
		t.Errorf("one goes: %v are told, want one of namespace 100", changed)
	}

	if changed := l.Set(owner(name(3), "1", 31, ""), Units{Frontends: 30}); len(changed) != 2 {
		t.Errorf("one grows: %v are told, want two", changed)
	}

	if changed := l.Set(owner(name(3), "1", 31, ""), Units{Frontends: 30}); changed != nil {
		t.Errorf("nothing changed: %v are told", changed)
	}

	if changed := l.Set(owner("default", "new", 1e6, ""), Units{Frontends: 10}); len(changed) != 1 || l.Refused(Key{KindService, "default", "new"}) != nil {
		t.Errorf("a new object of namespace default: %v are told", changed)
	}
}

// TestShares_budgets checks the numbers of the default budgets, and those of settings.
func TestShares_budgets(t *testing.T) {
	if diff := cmp.Diff(Budget{
		Namespace: Units{16384, 32768, 8192, 8192, 32768}, Total: Units{117964, 235929, 58982, 58982, 943718}, Reserve: Units{11796, 23592, 5898, 5898, 94371},
	}, Shares{}.Services(), cmp.AllowUnexported(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".settings" }, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}

	if got, want := (Shares{}).HostPorts().Namespace, (Units{3277, 6553, 1638, 1638, 26214}); got != want {
		t.Errorf("host ports of a namespace on a node: %+v, want %+v", got, want)
	}

	if got := (Shares{Namespace: 1000, Tables: 50}).Services(); got.Namespace.Frontends != 1000 || got.Namespace.Backends != 2000 || got.Namespace.Flows != 2000 || got.Total.Frontends != 65536 {
		t.Errorf("budget %+v", got)
	}

	for _, bad := range []Shares{{Namespace: -1}, {Tables: -1}, {Tables: 96}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}

	if err := (Shares{Namespace: 1 << 20, Tables: 95}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestAccounts_Refused_namesUnits checks the text of each reason.
func TestAccounts_Refused_namesUnits(t *testing.T) {
	a := NewAccounts(Shares{})
	set := func(o Owner, u Units) { a.services.Set(o, u) }
	set(owner("big", "s", 1, ""), Units{Frontends: 2, Backends: 40000})
	set(owner("full", "old", 1, ""), Units{Frontends: 16384})
	set(owner("full", "young", 2, ""), Units{Frontends: 1, Addresses: 1})

	for i := range 7 {
		set(owner(fmt.Sprint("tenant", i), "s", 3, ""), Units{Frontends: 16384})
	}

	set(owner("default", "s", 4, ""), Units{Frontends: 16384})
	set(owner("flows", "s", 5, ""), Units{Frontends: 1, Flows: 32769})

	for key, want := range map[Key]string{
		{KindService, "big", "s"}:      "the Service needs 2 frontends, 40000 backends: a namespace may have at most 16384 frontends, 32768 backends (--namespace-frontends)",
		{KindService, "full", "young"}: "the Service needs 1 frontends, 1 external addresses: older objects of the namespace leave less of its budget of 16384 frontends, 8192 external addresses (--namespace-frontends)",
		{KindService, "tenant6", "s"}:  "the Service needs 16384 frontends: older objects of all namespaces leave less of the 106168 frontends that nodes have room for (--service-table-share)",
		{KindService, "flows", "s"}:    "the Service needs 1 frontends, 32769 flows on each node: a namespace may have at most 16384 frontends, 32768 flows on each node (--namespace-frontends)",
		{KindService, "default", "s"}:  "<nil>",
		{KindService, "x", "unknown"}:  "<nil>",
	} {
		if got := fmt.Sprint(a.Refused(key)); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}

	pod := func(node string, ports int) Meaning {
		p := &Pod{Owner: Owner{Key: Key{KindPod, "ns", "p"}}, Node: node}
		for i := range ports {
			p.Ports = append(p.Ports, HostPort{Number: uint16(i + 1), Container: 1})
		}

		return Meaning{Pod: p}
	}

	key := Key{KindPod, "ns", "p"}
	for _, step := range []struct {
		m      Meaning
		told   int
		reason string
	}{
		{pod("n1", 1638), 0, ""},
		{pod("n2", 1639), 1, "the Pod needs 3278 frontends, 3278 backends: a namespace may have at most 3277 frontends, 6553 backends (--service-table-share)"},
		{pod("n2", 1638), 1, ""},
		{Meaning{}, 0, ""},
		{Meaning{}, 0, ""},
	} {
		if told := a.Set(key, step.m, Config{}); len(told) != step.told {
			t.Errorf("%v are told, want %d", told, step.told)
		}

		if err := a.Refused(key); (err == nil) != (step.reason == "") || err != nil && !strings.Contains(err.Error(), step.reason) {
			t.Errorf("refused for %v, want %q", err, step.reason)
		}
	}

	if len(a.pods)+len(a.nodes) != 0 {
		t.Errorf("ledgers of %d nodes are left", len(a.pods))
	}
}
