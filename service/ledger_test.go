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
	"github.com/google/go-cmp/cmp/cmpopts"
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
	out := map[Key]verdict{}
	requests, objects := map[string]Units{}, map[string][]asked{}

	for _, o := range slices.SortedFunc(maps.Values(all), func(x, y asked) int {
		return (&entry{Owner: x.Owner}).compare(&entry{Owner: y.Owner})
	}) {
		if !o.units.within(b.Namespace) {
			out[o.Key] = oversized
		} else if sum := requests[o.Namespace].plus(o.units); !sum.within(b.Namespace) {
			out[o.Key] = outOfSpace
		} else {
			requests[o.Namespace] = sum
			objects[o.Namespace] = append(objects[o.Namespace], o)
		}
	}

	isFirst := func(namespace string) bool { return namespace == "default" || namespace == "kube-system" }
	// serve divides the total among the namespaces and returns the units of the objects that are
	// served.
	serve := func(first bool, total Units) (served Units) {
		share := fairly(requests, func(n string) bool { return isFirst(n) == first }, total)

		for namespace, list := range objects {
			if isFirst(namespace) != first {
				continue
			}

			var used Units

			for _, o := range list {
				if !used.plus(o.units).within(share) {
					out[o.Key] = outOfShare
					continue
				}

				used, served = used.plus(o.units), served.plus(o.units)
			}
		}

		return served
	}

	used := serve(true, b.Total)
	serve(false, b.Total.minus(used.larger(b.Reserve)))

	return out
}

// fairly returns the share of each namespace. It raises each number until the total is granted or
// all requests are.
func fairly(requests map[string]Units, counts func(namespace string) bool, total Units) (share Units) {
	for i, number := range share.numbers() {
		granted, most := 0, 0

		for granted <= *total.numbers()[i] && *number <= 300 {
			*number++
			granted, most = 0, 0

			for namespace, r := range requests {
				if counts(namespace) {
					granted += min(*number, *r.numbers()[i])
					most = max(most, *r.numbers()[i])
				}
			}
		}

		if *number--; granted <= *total.numbers()[i] && most <= *number {
			*number = 1 << 30
		}
	}

	return share
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
		l, all, told, written := NewLedger(b), map[Key]asked{}, map[Key]verdict{}, map[Key]bool{}

		for step := range 400 {
			names := []string{"default", "kube-system", "a", "b", "c", "d"}

			o := asked{owner(names[r.IntN(len(names))], fmt.Sprint(r.IntN(8)), r.IntN(6), fmt.Sprint(r.IntN(4))), Units{r.IntN(14), r.IntN(24), r.IntN(8), r.IntN(8), r.IntN(32)}}
			if old, ok := all[o.Key]; ok && r.IntN(2) == 0 { // not recreated
				o.Owner = old.Owner
			}

			if r.IntN(40) == 0 {
				o.units.Backends = 1000
			}

			if r.IntN(3) == 0 {
				delete(all, o.Key)
				delete(told, o.Key)
				delete(written, o.Key)
				l.Delete(o.Key)
			} else {
				all[o.Key] = o
				written[o.Key] = true
				l.Set(o.Owner, o.units)
			}

			if r.IntN(20) == 0 { // the number of nodes changes
				b.Total.Flows, b.Reserve.Flows = 300*(1+r.IntN(3))/2, 30*(1+r.IntN(3))/2
				l.SetTotal(b)
			}

			if r.IntN(3) == 0 { // several changes at once
				continue
			}

			want := decide(b, all)
			changed := slices.AppendSeq(l.Settle(), maps.Keys(written))
			clear(written)

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

			if l.Len() != len(all) {
				t.Fatalf("step %d: %d objects, want %d", step, l.Len(), len(all))
			}
		}

		for k := range all {
			l.Delete(k)
		}

		l.Settle()

		empty := NewLedger(b)
		empty.Settle()

		if diff := cmp.Diff(empty, l, cmp.AllowUnexported(Ledger{}, division{}, Budget{})); diff != "" {
			t.Fatalf("after all are deleted (-empty +got):\n%s", diff)
		}
	}

	for _, v := range []verdict{oversized, outOfSpace, outOfShare, fitsBudgets} {
		if seen[v] < 50 {
			t.Errorf("verdict %d was seen %d times", v, seen[v])
		}
	}
}

// TestLedger_changesAreLocal checks that a change names objects of other namespaces only if they
// request more than their share.
func TestLedger_changesAreLocal(t *testing.T) {
	b := Budget{Namespace: Units{Frontends: 100}, Total: Units{Frontends: 10_000}}
	l := NewLedger(b)
	set := func(namespace, name string, age, fronts int) []Key {
		l.Set(owner(namespace, name, age, ""), Units{Frontends: fronts})
		return l.Settle()
	}
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	served := func(i int) (n int) {
		for j := range 10 {
			if l.Refused(Key{KindService, name(i), fmt.Sprint(j)}) == nil {
				n++
			}
		}

		return n
	}

	for i := range 100 { // exactly the total
		for j := range 10 {
			if changed := set(name(i), fmt.Sprint(j), 10*i+j, 10); changed != nil {
				t.Fatalf("an object with room: %v are told", changed)
			}
		}
	}

	for i := range 40 { // the total in 140 parts is 71, and 100 are left if 40 have 40 each
		for j := range 4 {
			set(name(100+i), fmt.Sprint(j), j, 10)
		}
	}

	if served(0) != 8 || served(99) != 8 || served(100) != 10 { // 6 do not exist
		t.Fatalf("served: %d and %d of 10 objects, and %d of 4, want 8 and 4", served(0), served(99), served(100)-6)
	}

	for what, change := range map[string]func() []Key{
		"a namespace beyond its share gets smaller": func() []Key { return set(name(3), "9", 39, 5) },
		"an object of a namespace below its share":  func() []Key { return set(name(139), "4", 4, 0) },
		"an object changes that is not served":      func() []Key { return set(name(4), "8", 48, 9) },
		"a namespace with an object that uses none": func() []Key { return set("new", "0", 0, 0) },
		"nothing": func() []Key { return set(name(4), "8", 48, 9) },
	} {
		if changed := change(); len(changed) != 0 {
			t.Errorf("%s: %v are told", what, changed)
		}
	}

	l.Delete(Key{KindService, name(100), "0"})
	l.Delete(Key{KindService, name(101), "0"})

	for _, k := range l.Settle() { // 20 more for 100 namespaces: less than an object each
		t.Errorf("two objects go: %v is told", k)
	}

	if changed := set("default", "new", 1e6, 100); l.Refused(Key{KindService, "default", "new"}) != nil {
		t.Errorf("a new object of namespace default is not served; %v are told", changed)
	}
}

// TestLedger_sharesAreKept is a tenant with large Services in seven namespaces. They were created
// before all others and have become large later. No object of a namespace that requests less than
// its share may lose anything.
func TestLedger_sharesAreKept(t *testing.T) {
	l := NewLedger(Shares{}.Services(2))
	large := Units{Frontends: 8060, Backends: 1, Addresses: 64, Local: 8060, Flows: 32305}
	victims := map[Key]bool{}

	for i := range 7 {
		l.Set(owner(fmt.Sprint("attacker", i), "s", i, ""), Units{Frontends: 1})
	}

	for i := range 500 {
		o := owner(fmt.Sprint("victim", i%20), fmt.Sprint(i), 1000+i, "")
		l.Set(o, Units{Frontends: 4, Backends: 12, Addresses: 1, Local: 3, Flows: 30})
		victims[o.Key] = true
	}

	if refused := l.Settle(); refused != nil {
		t.Fatalf("before the attack: %v", refused)
	}

	for i := range 7 {
		l.Set(owner(fmt.Sprint("attacker", i), "s", i, ""), large)
	}

	beyond := 0

	for _, k := range l.Settle() {
		if beyond++; victims[k] {
			t.Errorf("%s: %v", k, l.Refused(k))
		}
	}

	for k := range victims {
		if err := l.Refused(k); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}

	// The victims use 15,000 of 36,864 flows, and one object of 32,305 has no room beside them.
	if beyond == 0 {
		t.Error("the attacker's objects have room: the test shows nothing")
	}
}

// TestLedger_skipsWhatDoesNotFit checks that younger objects are served if an older one does not
// fit.
func TestLedger_skipsWhatDoesNotFit(t *testing.T) {
	l := NewLedger(Budget{Namespace: Units{Frontends: 10}, Total: Units{Frontends: 15}})
	for _, o := range []struct {
		namespace string
		age       int
		fronts    int
	}{{"a", 1, 6}, {"a", 2, 5}, {"a", 3, 4}, {"b", 1, 5}, {"b", 2, 3}, {"b", 3, 2}, {"c", 1, 1}} {
		l.Set(owner(o.namespace, fmt.Sprint(o.age), o.age, ""), Units{Frontends: o.fronts})
	}

	want := map[Key]verdict{ // c leaves 14, so the share is 7
		{KindService, "a", "2"}: outOfSpace,
		{KindService, "a", "3"}: outOfShare,
		{KindService, "b", "2"}: outOfShare,
	}
	got := map[Key]verdict{}

	for _, k := range l.Settle() {
		got[k] = l.entries[k].verdict
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("not served (-want +got):\n%s", diff)
	}
}

// TestLedger_SetTotal checks that another total alone lets objects in and out, and that Settle
// names them.
func TestLedger_SetTotal(t *testing.T) {
	l := NewLedger(Shares{}.Services(8))

	for _, namespace := range []string{"a", "b"} {
		for i := range 8 {
			l.Set(owner(namespace, fmt.Sprint(i), i, ""), Units{Flows: 4000})
		}
	}

	// 36,864 flows are left for two namespaces that request 32,000: four objects of 4,000 for each.
	if got := len(l.Settle()); got != 8 {
		t.Errorf("%d objects are not served, want 8", got)
	}

	for _, step := range []struct{ nodes, changed, refused int }{{8, 0, 8}, {9, 8, 0}, {16, 0, 0}, {8, 8, 8}} {
		l.SetTotal(Shares{}.Services(step.nodes))

		changed, refused := len(l.Settle()), 0

		for k := range l.entries {
			if l.Refused(k) != nil {
				refused++
			}
		}

		if changed != step.changed || refused != step.refused {
			t.Errorf("%d nodes: %d decisions have changed and %d objects are not served, want %d and %d",
				step.nodes, changed, refused, step.changed, step.refused)
		}
	}
}

// TestShares_budgets checks the numbers of the default budgets, and those of settings.
func TestShares_budgets(t *testing.T) {
	if diff := cmp.Diff(Budget{
		Namespace: Units{16384, 32768, 8192, 8192, 32768}, Total: Units{117964, 235929, 58982, 58982, 40960}, Reserve: Units{11796, 23592, 5898, 5898, 4096},
	}, Shares{}.Services(0), cmpopts.IgnoreUnexported(Budget{})); diff != "" {
		t.Error(diff)
	}

	if got, want := (Shares{}).HostPorts().Namespace, (Units{3277, 6553, 1638, 1638, 0}); got != want {
		t.Errorf("host ports of a namespace on a node: %+v, want %+v", got, want)
	}

	if got := (Shares{Namespace: 1000, Tables: 50}).Services(1); got.Namespace.Frontends != 1000 || got.Namespace.Backends != 2000 || got.Namespace.Flows != 2000 || got.Total.Frontends != 65536 {
		t.Errorf("budget %+v", got)
	}

	for nodes, want := range map[int]int{1: 40960, 8: 40960, 9: 81920, 16: 81920, 17: 163840, 5000: 41943040, 1 << 30: maxFlows} {
		if got := (Shares{}).Services(nodes).Total.Flows; got != want {
			t.Errorf("%d nodes: a total of %d flows, want %d", nodes, got, want)
		}
	}

	if got := (Shares{FlowsPerNode: 10}).Services(20).Total.Flows; got != 320 {
		t.Errorf("20 nodes with 10 flows: a total of %d flows, want 320", got)
	}

	for _, bad := range []Shares{{Namespace: -1}, {Tables: -1}, {Tables: 96}, {FlowsPerNode: -1}} {
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

	a.Settle()

	for key, want := range map[Key]string{
		{KindService, "big", "s"}:      "the Service needs 2 frontends, 40000 backends: a namespace may have at most 16384 frontends, 32768 backends (--namespace-frontends)",
		{KindService, "full", "young"}: "the Service needs 1 frontends, 1 external addresses: older objects of the namespace leave less of its budget of 16384 frontends, 8192 external addresses (--namespace-frontends)",
		{KindService, "tenant6", "s"}:  "the Service needs 16384 frontends: older objects of the namespace leave less of its share of 106168 frontends for all namespaces (--service-table-share, --service-flows-per-node)",
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
		a.Set(key, step.m, Config{})

		if told := a.Settle(); len(told) != step.told {
			t.Errorf("%v are told, want %d", told, step.told)
		}

		if err := a.Refused(key); (err == nil) != (step.reason == "") || err != nil && !strings.Contains(err.Error(), step.reason) {
			t.Errorf("refused for %v, want %q", err, step.reason)
		}
	}

	if len(a.pods)+len(a.nodeOf) != 0 {
		t.Errorf("ledgers of %d nodes are left", len(a.pods))
	}
}
