package reconcile

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// TestRegroups_take checks that namespaces take turns, and that a selector is a key of the first
// namespace of its policies.
func TestRegroups_take(t *testing.T) {
	peers := func(namespace string, values ...string) *networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
		p.Spec.Ingress = make([]networkingv1.NetworkPolicyIngressRule, 1)

		for _, v := range values {
			p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": v}},
			})
		}

		return p
	}

	many, few := peers("many", "1", "2", "3"), peers("few", "3")

	c, err := NewCluster(plan.Config{}, many, few)
	if err != nil {
		t.Fatal(err)
	}

	r := newRegroups(c)

	for _, p := range []*networkingv1.NetworkPolicy{many, few} { // "few" is before "many" in the alphabet
		names, _ := plan.SelectorsOf(p) // it returns no error
		for _, name := range names {
			if _, isHeld := r.held[plan.SelectorKey(name)]; !isHeld {
				r.hold(plan.SelectorKey(name))
			}
		}

		r.hold(plan.PolicyKey(p.Namespace, p.Name))
	}

	var got []string

	for len(r.held) > 0 {
		k := r.take()
		r.turns.charge(k, 1)

		namespace := k.Namespace
		if k.Kind == plan.KindSelector {
			namespace = c.SelectorNamespace(k.Name)
		}

		got = append(got, namespace)
	}

	// Of "many" are the selectors of its own pods and of two labels, and the policy. The third label and
	// the rest are of "few".
	if turns := strings.Join(got, " "); turns != "few many few many few many many" || len(r.held) > 0 {
		t.Errorf("keys of %v, want those of few and many in turn; %d are held", got, len(r.held))
	}

	if c.SelectorNamespace("none") != "" {
		t.Error("a selector that no policy has is of a namespace")
	}
}

// TestRegroups_hurry checks that an urgent key is taken first, and once.
func TestRegroups_hurry(t *testing.T) {
	r := newRegroups(&plan.Cluster{})
	a, b, c := plan.PolicyKey("ns", "a"), plan.PolicyKey("ns", "b"), plan.PolicyKey("ns", "c")

	for _, k := range []plan.Key{a, b, c} {
		r.hold(k)
	}

	r.hurry(plan.PolicyKey("ns", "not held"))
	r.hurry(c)
	r.hurry(c)

	var got []plan.Key
	for len(r.held) > 0 {
		got = append(got, r.take())
	}

	if !slices.Equal(got, []plan.Key{c, a, b}) {
		t.Errorf("took %v, want c, a, b", got)
	}

	r.hold(c) // its former turn is still in the queue

	if k := r.take(); k != c || len(r.held) > 0 {
		t.Errorf("took %v, and %d are held", k, len(r.held))
	}
}

// newTestWorker returns a worker for an empty cluster, which is not running.
func newTestWorker(t *testing.T) *worker {
	t.Helper()

	queue := newQueue()
	t.Cleanup(queue.ShutDown)

	c, err := NewCluster(plan.Config{})
	if err != nil {
		t.Fatal(err)
	}

	l := &Loop{log: slog.New(slog.DiscardHandler)}
	l.cluster.Stores = c.Stores
	l.counts, l.lag, l.failures.keys = newCounts(), newLag(), map[plan.Key]failure{}

	return newWorker(l, &term{Term: &election.Term{}, loop: l}, ipam.NewAllocator(ipam.Settings{}), queue)
}

// TestWorker_takeBatch checks that the keys of policies and slow ones do not count for the size of
// a batch.
func TestWorker_takeBatch(t *testing.T) {
	w := newTestWorker(t)
	w.syncing, w.synced = 1, 1                      // the first full sync is done
	w.throttle.buckets.Spend("busy", 2*unitsAtOnce) // none of its Services may change now

	add := func(k plan.Key) {
		w.lag.begin(k, time.Now())
		w.queue.Add(k)
	}

	const size, others = 8, 20
	for n := range others {
		add(plan.PolicyKey("busy", fmt.Sprint(n)))
		add(plan.ServiceKey("busy", fmt.Sprint(n)))
	}

	for n := range size + 1 {
		add(plan.PodKey("busy", fmt.Sprint(n)))
	}

	b := w.takeBatch(nil, size)

	if len(b.rows) != size || len(w.slow) != others || len(w.regroups.held) != others || w.queue.Len() != 1 {
		t.Errorf("%d keys are prepared, %d are slow, %d are held and %d wait, want %d, %d, %d and 1",
			len(b.rows), len(w.slow), len(w.regroups.held), w.queue.Len(), size, others, others)
	}

	if !w.throttle.isQuiet {
		t.Error("changes are slow, although no pod was ever created")
	}

	// The policies wait until the transaction that does not take them.
	held := w.lag.heldOwners(plan.KindService)
	if _, _, waiting := w.lag.oldest(); held != others || waiting != size+1+others {
		t.Errorf("%d Services are held and %d owners wait, want %d and %d", held, waiting, others, size+1+others)
	}

	for len(w.slow) > 0 {
		w.reconcileSlow(t.Context())
	}

	if held := w.lag.heldOwners(plan.KindService); held != 0 {
		t.Errorf("%d Services are held after they were reconciled", held)
	}
}

// TestWorker_isRegroupSlow checks that policies of many namespaces are slow only while pods are
// created.
func TestWorker_isRegroupSlow(t *testing.T) {
	w := newTestWorker(t)

	for _, step := range []struct{ quiet, many, slow bool }{{false, false, false}, {true, false, false}, {true, true, false}, {false, true, true}} {
		w.throttle.isQuiet = step.quiet

		if step.many && !w.regroups.isContended() {
			for n := range fewNamespaces + 1 {
				w.regroups.hold(plan.PolicyKey(fmt.Sprint("ns", n), "p"))
			}
		}

		if got := w.isRegroupSlow(); got != step.slow {
			t.Errorf("no pods %t, policies of many namespaces %t: slow %t, want %t", step.quiet, step.many, got, step.slow)
		}
	}
}

// TestWorker_fail_hurriesSelector checks that the selector whose port group a failed pod waits for
// is reconciled before the other held keys.
func TestWorker_fail_hurriesSelector(t *testing.T) {
	w := newTestWorker(t)
	first, isolating, pod := plan.SelectorKey("first"), plan.SelectorKey("isolating"), plan.PodKey("ns", "p")

	w.regroups.hold(first)
	w.regroups.hold(isolating)
	w.fail(pod, "", &nb.MissingRowError{Table: nbmodel.PortGroupTable, ID: "isolating"})

	if got := []plan.Key{w.regroups.take(), w.regroups.take()}; !slices.Equal(got, []plan.Key{isolating, first}) {
		t.Errorf("took %v, want the selector that isolates the pod, and then the first one", got)
	}
}

// TestRegroups_wait checks that some transactions need not wait, and the next ones do, and longer after a
// large one.
func TestRegroups_wait(t *testing.T) {
	r := newRegroups(&plan.Cluster{})

	for i := range regroupsAtOnce {
		if wait := r.wait(); wait != 0 {
			t.Errorf("transaction %d waits for %s", i, wait)
		}

		r.spend(unitsPerRegroup, r.isContended())
	}

	if wait := r.wait(); wait < regroupEvery/2 || wait > regroupEvery {
		t.Errorf("the next one waits for %s, want about %s", wait, regroupEvery)
	}

	for units, times := range map[int]time.Duration{2*unitsPerRegroup + 1: 3, 100 * unitsPerRegroup: regroupsAtOnce} {
		before := r.wait()
		r.spend(units, r.isContended())

		if more := r.wait() - before; more > times*regroupEvery || more < times*regroupEvery-regroupEvery/2 {
			t.Errorf("after %d units, the next one waits %s longer, want %s", units, more, times*regroupEvery)
		}
	}
}

// TestRegroups_slowIfManyWait checks that a transaction counts several times while policies of more
// than a few namespaces wait.
func TestRegroups_slowIfManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no tokens come meanwhile
		r := newRegroups(&plan.Cluster{})
		expect := func(name string, wait time.Duration) {
			t.Helper()

			before := r.wait()
			r.spend(1, r.isContended())

			if got := r.wait() - before; got != wait {
				t.Errorf("%s: the next transaction waits %s longer, want %s", name, got, wait)
			}
		}

		for range regroupsAtOnce {
			r.spend(1, false)
		}

		for n := range fewNamespaces {
			r.hold(plan.PolicyKey(fmt.Sprint("ns", n), "p"))
			r.hold(plan.PolicyKey(fmt.Sprint("ns", n), "q"))
		}

		expect("few namespaces", regroupEvery)
		r.hold(plan.PolicyKey("another", "p"))
		expect("many namespaces", regroupsAtOnce*regroupEvery)

		for len(r.held) > 1 {
			r.take()
		}

		expect("one namespace is left", regroupEvery)
	})
}

// TestLag_hold checks that owners which a pace holds do not wait, also if further events concern them.
func TestLag_hold(t *testing.T) {
	l := newLag()
	held, other := plan.PolicyKey("ns", "held"), plan.PolicyKey("ns", "other")
	expect := func(name string, waiting, holding int) {
		t.Helper()

		if _, _, n := l.oldest(); n != waiting || l.heldOwners(plan.KindPolicy) != holding {
			t.Errorf("%s: %d owners wait, %d are held, want %d, %d", name, n, l.heldOwners(plan.KindPolicy), waiting, holding)
		}
	}

	now := time.Now()
	l.begin(held, now)
	l.begin(other, now)
	l.take(held)
	l.begin(held, now)
	expect("before", 3, 0)
	l.hold(held)
	expect("held", 1, 1)
	l.begin(held, now)
	expect("another event", 1, 1)
	l.release(held)
	l.begin(held, now)
	expect("an event after that", 2, 0)

	if _, ok := l.done(held); ok {
		t.Error("a held owner has waited")
	}

	l.hold(held)

	if n := l.heldOwners(plan.KindSelector, plan.KindService); n != 0 {
		t.Errorf("%d owners of other kinds are held", n)
	}

	l.reset()
	expect("reset", 0, 0)
}
