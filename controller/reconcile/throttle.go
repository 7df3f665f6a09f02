package reconcile

import (
	"maps"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/tokenbucket"
)

// Limits of a namespace's changes, in units of nb.Allowance. northd, the Southbound server and
// ovn-controller each work on one thing at a time, so a pod waits for the changes before it. A
// namespace at these limits keeps them busy for a sixth of the time. totalPerSecond limits all of
// them together. The limits are those while pods are created (adapt).
const (
	unitsPerSecond = 512
	unitsAtOnce    = 1024 // after a pause
	unitsPerCommit = 128  // of all namespaces; others wait for one commit at most
	// totalPerSecond is for all namespaces together. OVN needs about a sixth of its time for it.
	totalPerSecond = 512
	// vipsPerUnit is the number of VIPs that the controller plans and compares in the time that
	// OVN needs for a unit. Pods wait for that, too, and a Service that changes step by step is
	// planned at each step.
	vipsPerUnit = 16
	// While no pod was created in the last quietAfter, none waits for these changes, and they may
	// be quietFactor times as fast.
	quietAfter  = 5 * time.Second
	quietFactor = 4
)

// throttle limits how fast the load balancers of each namespace change: those of its Services and
// of its pods' host ports. It also limits how fast its pods change their port groups by changing
// their labels. The first full sync of a connection is not limited. Decision 0041 has the reasons.
//
// Each namespace has a token bucket. For each commit,
// allowances gives the namespace an allowance of what is in the bucket. nb.DB.CommitWithin leaves
// out the changes that exceed it, and spend takes the others out of the bucket. Owners with
// left-out changes are postponed. A Service is also postponed if its namespace has less than a
// whole commit in its bucket (wait).
type throttle struct {
	buckets *tokenbucket.Set // of the namespaces, in units
	// leaving maps VIPs that the database still has, although their owners no longer want them, to
	// these owners.
	leaving map[string]plan.Key
	// urgent has the owners of such VIPs that an object of another namespace wants. They are not
	// limited: until the VIPs are removed, the former owner may get the other object's
	// connections.
	urgent map[plan.Key]struct{}
	pods   map[plan.Key]writtenPod // those whose rows were written

	lastPod time.Time // when the rows of a new pod were last written
	isQuiet bool      // no pod was created for quietAfter, as of the last call of adapt
}

// writtenPod is a pod as of the last write of its rows.
type writtenPod struct {
	labels map[string]string // with which the rows were planned
	isHeld bool              // the allowance has held some of its port groups
}

func newThrottle() throttle {
	return throttle{
		buckets: tokenbucket.New(tokenbucket.Limits{
			PerSecond: unitsPerSecond, AtOnce: unitsAtOnce, TotalPerSecond: totalPerSecond,
		}),
		leaving: map[string]plan.Key{},
		urgent:  map[plan.Key]struct{}{},
		pods:    map[plan.Key]writtenPod{},
	}
}

// adapt makes changes faster or slower, depending on whether pods are created.
func (t *throttle) adapt() {
	t.isQuiet = time.Since(t.lastPod) > quietAfter
	t.buckets.SetRates(t.quick(unitsPerSecond), t.quick(totalPerSecond))
}

// quick returns a limit as it is now: quietFactor times as high while no pods are created.
func (t *throttle) quick(limit int) int {
	if t.isQuiet {
		return quietFactor * limit
	}

	return limit
}

// wait returns how long a Service must wait because its namespace has changed too much. Other
// kinds never wait, because they have other rows than load balancers, too.
func (t *throttle) wait(k plan.Key) time.Duration {
	if _, isUrgent := t.urgent[k]; isUrgent || k.Kind != plan.KindService {
		return 0
	}

	return t.namespaceWait(k.Namespace)
}

// isLimited reports whether the owner is a Service of a namespace whose bucket is not full. Such
// owners are reconciled one after another (worker.slow), because each of them may empty the bucket.
func (t *throttle) isLimited(k plan.Key) bool {
	return k.Kind == plan.KindService && !t.buckets.IsFull(k.Namespace)
}

// namespaceWait returns how long it takes until the namespace's bucket has the tokens of one
// commit.
func (t *throttle) namespaceWait(namespace string) time.Duration {
	return t.buckets.Wait(namespace, unitsPerCommit)
}

// namespaceAllowance is a namespace's allowance for one commit.
type namespaceAllowance struct {
	nb.Allowance
	initial float64 // Left before the commit
}

// allowances returns the allowances for one commit of the rows in want, by namespace and by owner.
// The owners of a namespace have the same one. Owners that are not limited have none. labels are
// those of the pods in want, and vipShare is nb.Allowance.Share.
func (t *throttle) allowances(
	want map[plan.Key][]plan.Row,
	labels map[plan.Key]map[string]string,
	vipShare func(plan.Key, string) float64,
) (map[string]*namespaceAllowance, map[plan.Key]*nb.Allowance) {
	byNamespace, byOwner := map[string]*namespaceAllowance{}, map[plan.Key]*nb.Allowance{}

	for k := range want {
		_, isUrgent := t.urgent[k]
		if isUrgent || k.Kind != plan.KindService && k.Kind != plan.KindPod {
			continue
		}

		a := byNamespace[k.Namespace]
		if a == nil {
			a = &namespaceAllowance{Allowance: nb.Allowance{Share: vipShare}}
			a.Relabelled = map[plan.Key]struct{}{}
			byNamespace[k.Namespace] = a
		}

		// A new pod has not been written. Of a pod with held groups, further changes count also if it
		// has its former labels again: otherwise, the labels could change back and forth freely.
		if p, written := t.pods[k]; written && (p.isHeld || !maps.Equal(p.labels, labels[k])) {
			a.Relabelled[k] = struct{}{}
		}

		byOwner[k] = &a.Allowance
	}

	for namespace, a := range byNamespace {
		part := float64(t.quick(unitsPerCommit)) / float64(len(byNamespace))
		a.initial = max(0, min(part, t.buckets.Tokens(namespace)))
		a.Left = a.initial
	}

	return byNamespace, byOwner
}

// recordPod records that the rows of a pod with these labels are written, except for those that the
// allowance has held.
func (t *throttle) recordPod(k plan.Key, rows []plan.Row, labels map[string]string, isHeld bool) {
	if k.Kind != plan.KindPod || len(rows) == 0 {
		delete(t.pods, k)
		return
	}

	if _, isKnown := t.pods[k]; !isKnown {
		t.lastPod = time.Now()
	}

	t.pods[k] = writtenPod{labels, isHeld}
}

// spend accounts for a commit of these rows: it takes what was spent of each namespace's allowance,
// and the controller's own work on VIPs, out of the bucket. byNamespace is nil if the commit was
// not limited.
func (t *throttle) spend(want map[plan.Key][]plan.Row, byNamespace map[string]*namespaceAllowance) {
	// Forget the VIPs that these owners had still to remove. The allowances have those that remain.
	maps.DeleteFunc(t.leaving, func(_ string, k plan.Key) bool { _, committed := want[k]; return committed })

	compared := plannedVIPs(want) // number of VIPs that the controller has planned, by namespace

	for namespace, a := range byNamespace {
		for k, vips := range a.Held {
			for _, vip := range vips {
				t.leaving[vip] = k
			}

			compared[namespace] += len(vips)
		}

		t.buckets.Spend(namespace, a.initial-a.Left+float64(compared[namespace]/vipsPerUnit))
	}

	for k := range want {
		delete(t.urgent, k)
	}
}

// plannedVIPs returns the number of VIPs of the Services of each namespace.
func plannedVIPs(want map[plan.Key][]plan.Row) map[string]int {
	n := map[string]int{}

	for k, rows := range want {
		if k.Kind != plan.KindService {
			continue
		}

		for _, row := range rows {
			if lb, ok := row.(plan.LoadBalancer); ok {
				n[k.Namespace] += len(lb.VIPs)
			}
		}
	}

	return n
}

// markUrgent makes the owners of leaving VIPs urgent if the rows of another namespace have these
// VIPs. It returns the owners that were not urgent before.
func (t *throttle) markUrgent(want map[plan.Key][]plan.Row) []plan.Key {
	if len(t.leaving) == 0 {
		return nil
	}

	var out []plan.Key

	for k, rows := range want {
		for _, row := range rows {
			lb, ok := row.(plan.LoadBalancer)
			if !ok {
				continue
			}

			for vip := range lb.VIPs {
				owner, isLeaving := t.leaving[vip]
				if _, isUrgent := t.urgent[owner]; isLeaving && !isUrgent && owner.Namespace != k.Namespace {
					t.urgent[owner] = struct{}{}
					out = append(out, owner)
				}
			}
		}
	}

	return out
}
