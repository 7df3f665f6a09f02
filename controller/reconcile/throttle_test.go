package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

func TestThrottle(t *testing.T) {
	th := newThrottle()
	a, b, other := plan.ServiceKey("a", "x"), plan.ServiceKey("a", "y"), plan.ServiceKey("b", "x")
	want := map[plan.Key][]plan.Row{a: nil, b: nil, other: nil, plan.PodKey("a", "p"): nil, plan.NodeKey("n"): nil}
	spend := func(units float64) {
		t.Helper()

		byNamespace, byOwner := th.allowances(want, nil, nil)
		if len(byOwner) != 4 || byOwner[a] != byOwner[b] || byOwner[a] == byOwner[other] || byOwner[plan.PodKey("a", "p")] != byOwner[a] {
			t.Fatalf("allowances %v: want one for each namespace, and none for the node", byOwner)
		}

		byOwner[a].Left -= units

		th.spend(want, byNamespace)
	}
	spend(0)

	if th.isLimited(a) || th.wait(a) != 0 {
		t.Error("a namespace without changes is limited")
	}

	spend(unitsPerCommit)

	if !th.isLimited(a) || th.wait(a) != 0 {
		t.Error("a namespace must wait after its first commit")
	}

	if byNamespace, _ := th.allowances(want, nil, nil); byNamespace["a"].Left != unitsPerCommit/2 || byNamespace["b"].Left != unitsPerCommit/2 {
		t.Errorf("a may change %g, b %g, want %d each", byNamespace["a"].Left, byNamespace["b"].Left, unitsPerCommit/2)
	}

	spend(unitsPerCommit)
	spend(3 * unitsAtOnce) // one VIP may be larger than an allowance

	least := (2*unitsAtOnce + 3*unitsPerCommit) * time.Second / unitsPerSecond
	for k, most := range map[plan.Key]time.Duration{a: least + time.Second, b: least + time.Second} {
		if wait := th.wait(k); wait < least-time.Second || wait > most {
			t.Errorf("%v waits %v, want %v to %v", k, wait, least, most)
		}
	}

	if byNamespace, _ := th.allowances(want, nil, nil); byNamespace["a"].Left != 0 {
		t.Errorf("a may change %g, want nothing", byNamespace["a"].Left)
	}

	for _, k := range []plan.Key{other, plan.PodKey("a", "p"), plan.NodeKey("n")} {
		if th.wait(k) != 0 || th.isLimited(k) {
			t.Errorf("%v must wait", k)
		}
	}
}

// TestThrottle_adapt checks that changes are faster when no pod was created for some seconds, also
// for a namespace that has spent its tokens before, and slower when a new pod has rows.
func TestThrottle_adapt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		service, pod := plan.ServiceKey("a", "s"), plan.PodKey("b", "p")
		rows := []plan.Row{plan.LoadBalancer{}}
		write := func() { th.recordPod(pod, rows, nil, false) }

		check := func(name string, isQuiet bool) {
			t.Helper()
			th.adapt()

			factor := 1
			if isQuiet {
				factor = quietFactor
			}

			byNamespace, _ := th.allowances(map[plan.Key][]plan.Row{service: nil}, nil, nil)
			if got := byNamespace["a"].Left; got != float64(factor*unitsPerCommit) {
				t.Errorf("%s: %g units for a commit, want %d", name, got, factor*unitsPerCommit)
			}

			th.buckets.Spend("spent", 2*unitsAtOnce)
			want := (unitsAtOnce + unitsPerCommit) * time.Second / time.Duration(factor*unitsPerSecond)

			if got := th.namespaceWait("spent"); got < want-time.Millisecond || got > want+time.Millisecond {
				t.Errorf("%s: a namespace that has spent its tokens waits %s, want %s", name, got, want)
			}

			time.Sleep(want) // the bucket is empty again
			time.Sleep(2 * want)
		}

		write()
		check("a new pod", false)
		check("a pod of some seconds ago", true)
		write()
		check("a pod that is written again", true)
		th.recordPod(pod, nil, nil, false)
		check("a pod is deleted", true)
		write()
		check("a pod of the same name", false)
	})
}

// TestThrottleHurries checks that a VIP which the database still has, although its owner does not
// want it any more, is not throttled if another namespace wants it.
func TestThrottleHurries(t *testing.T) {
	th := newThrottle()
	old := plan.ServiceKey("a", "old")
	gone := map[plan.Key][]plan.Row{old: nil}
	byNamespace, byOwner := th.allowances(gone, nil, nil)
	byOwner[old].Left -= unitsPerCommit + 2*unitsAtOnce
	byOwner[old].Held = map[plan.Key][]string{old: {"10.96.0.1:80", "10.96.0.1:81"}}

	th.spend(gone, byNamespace)

	wants := func(k plan.Key, vip string) map[plan.Key][]plan.Row {
		return map[plan.Key][]plan.Row{k: {plan.LoadBalancer{Name: "new", VIPs: map[string]string{vip: ""}}}}
	}
	for _, none := range []map[plan.Key][]plan.Row{wants(plan.ServiceKey("a", "new"), "10.96.0.1:80"), wants(plan.ServiceKey("b", "new"), "10.96.0.2:80")} {
		if got := th.markUrgent(none); len(got) > 0 || th.wait(old) == 0 {
			t.Errorf("%v makes %v urgent", none, got)
		}
	}

	if got := th.markUrgent(wants(plan.ServiceKey("b", "new"), "10.96.0.1:81")); !slices.Equal(got, []plan.Key{old}) {
		t.Errorf("urgent %v, want %v", got, old)
	}

	if _, byOwner := th.allowances(gone, nil, nil); th.wait(old) != 0 || len(byOwner) > 0 {
		t.Errorf("the urgent owner waits %v, allowances %v", th.wait(old), byOwner)
	}

	th.spend(gone, nil)

	if len(th.leaving) > 0 || len(th.urgent) > 0 {
		t.Errorf("leaving %v, urgent %v after the owner's commit", th.leaving, th.urgent)
	}
}

// TestThrottleCountsPlanning checks that a Service with many VIPs counts also if none of them
// changes.
func TestThrottleCountsPlanning(t *testing.T) {
	th := newThrottle()
	k := plan.ServiceKey("a", "wide")
	spend := func(vips int) {
		t.Helper()

		lb := plan.LoadBalancer{VIPs: map[string]string{}}
		for i := range vips {
			lb.VIPs[fmt.Sprint("10.96.0.1:", i)] = ""
		}

		want := map[plan.Key][]plan.Row{k: {lb}}
		byNamespace, _ := th.allowances(want, nil, nil)
		th.spend(want, byNamespace)
	}
	spend(vipsPerUnit - 1)

	if th.isLimited(k) {
		t.Error("a small Service counts although it does not change")
	}

	const vips = 8192
	for range unitsAtOnce*vipsPerUnit/vips + 1 {
		spend(vips)
	}

	least := (vips/vipsPerUnit + unitsPerCommit) * time.Second / unitsPerSecond
	if wait := th.wait(k); wait < least-time.Second/4 || wait > least {
		t.Errorf("it waits %v, want %v", wait, least)
	}

	gone := map[plan.Key][]plan.Row{k: nil} // the database still has its VIPs
	byNamespace, byOwner := th.allowances(gone, nil, nil)
	byOwner[k].Held = map[plan.Key][]string{k: make([]string, vips)}

	th.spend(gone, byNamespace)

	least += vips / vipsPerUnit * time.Second / unitsPerSecond
	if wait := th.wait(k); wait < least-time.Second/4 || wait > least {
		t.Errorf("after its removal it waits %v, want %v", wait, least)
	}
}

// TestThrottle_relabelled checks that changes of port groups count for pods whose labels differ from
// those with which their rows were written last, and for pods with held groups, but not for new pods.
func TestThrottle_relabelled(t *testing.T) {
	th := newThrottle()
	pod, service := plan.PodKey("a", "p"), plan.ServiceKey("a", "s")
	rows := []plan.Row{plan.LogicalSwitchPort{Name: "a_p"}}
	want := map[plan.Key][]plan.Row{pod: rows, service: nil}
	counts := func(labels map[string]string) bool {
		byNamespace, _ := th.allowances(want, map[plan.Key]map[string]string{pod: labels}, nil)

		_, isServiceCounted := byNamespace["a"].Relabelled[service]
		if isServiceCounted {
			t.Error("a Service is relabelled")
		}

		_, is := byNamespace["a"].Relabelled[pod]

		return is
	}
	old, now := map[string]string{"app": "a"}, map[string]string{"app": "b"}

	if counts(old) {
		t.Error("a new pod counts")
	}

	th.recordPod(pod, rows, old, false)

	if counts(map[string]string{"app": "a"}) || !counts(now) || !counts(nil) {
		t.Error("the pod must count exactly if its labels differ")
	}

	th.recordPod(pod, rows, now, true)

	if !counts(now) || !counts(old) {
		t.Error("a pod with held groups must count, also with its former labels")
	}

	th.recordPod(pod, nil, now, false) // deleted

	if counts(now) || len(th.pods) > 0 {
		t.Errorf("a deleted pod is recorded: %v", th.pods)
	}

	if th.recordPod(service, rows, nil, false); len(th.pods) > 0 {
		t.Errorf("a Service is recorded: %v", th.pods)
	}
}
