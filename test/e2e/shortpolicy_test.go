package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// triesEnv is how often a policy forbids a busy connection, in each direction, with the agent alive
// and dead.
const triesEnv = "OVN_EBPF_E2E_TRIES"

// testShortcutPolicy: a policy that forbids a busy connection ends it within the leases of
// docs/shortcuts.md, counted from when it ends a connection that always passes OVS.
func testShortcutPolicy(t *testing.T, r *shortcutRig) {
	tries := 5
	if text := os.Getenv(triesEnv); text != "" {
		var err error
		if tries, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		kind   networkingv1.PolicyType
		inward bool
		leases time.Duration
	}{
		{"egress", networkingv1.PolicyTypeEgress, false, 1},
		{"ingress", networkingv1.PolicyTypeIngress, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, v6 := range []bool{false, true} {
				r.forbid(t, tt.kind, tt.inward, v6, tt.leases*lease, tries/2+tries%2)
			}
		})
	}
}

// forbid makes the tries of one family.
func (r *shortcutRig) forbid(t *testing.T, kind networkingv1.PolicyType, inward, v6 bool, bound time.Duration, tries int) {
	t.Helper()
	// The emulated machine may hold each process back for a while; a shortcut without a bound would last
	// for ever.
	const slack = 1500 * time.Millisecond
	const interval = 50 * time.Millisecond
	client, err := r.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	policies := client.NetworkingV1().NetworkPolicies("default")
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "forbid-short"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "short"}}, PolicyTypes: []networkingv1.PolicyType{kind},
		},
	}
	forbidden := false
	allow := func() {
		if !forbidden {
			return
		}
		forbidden = false
		err := policies.Delete(context.WithoutCancel(t.Context()), policy.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	defer allow()

	busy := r.open(t, inward, true, v6, interval)
	// Packets to other pods always pass OVS.
	from, to := r.pod.Host(), port(r.Cluster.pod("b")(v6), podPort)
	if inward {
		from, to = host("b"), port(choose(v6, r.pod.IP4(), r.pod.IP6()), podPort)
	}
	reference := r.hold(t, "by OVS", from, to, time.Hour, "-udp", "-interval", interval.String())
	type try struct{ applied, quiet time.Time }
	var made []try
	for range tries {
		r.short(t, busy)
		time.Sleep(lease) // time for the other connection
		r.short(t, busy)
		m := try{applied: time.Now()}
		forbidden = true // also if the answer is lost
		if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		m.quiet = r.awaitQuiet(t)
		if pod, wire, err := r.entries(busy); err != nil || pod != nil && pod.Left > 0 || wire != nil && wire.Left > 0 {
			t.Errorf("%s: in use though it is forbidden: %+v and %+v (%v)", busy.name, pod, wire, err)
		}
		made = append(made, m)
		allow()
	}
	r.short(t, busy)
	time.Sleep(lease)
	report := busy.stopped(t)
	var other traffic.HoldReport
	reference.stop(t)
	if out := reference.wait(t); json.Unmarshal([]byte(out), &other) != nil {
		t.Fatalf("%s: %s", reference.name, out)
	}
	var after []time.Duration
	for _, m := range made {
		last, ok := lastBefore(report, m.applied, m.quiet)
		by, known := lastBefore(other, m.applied, m.quiet)
		if !ok || !known {
			t.Errorf("%s: no end of it or of the other connection between %s and %s: %+v, %+v", busy.name, m.applied, m.quiet, report, other)
			continue
		}
		after = append(after, last.Sub(by).Round(time.Millisecond))
	}
	slices.Sort(after)
	t.Logf("%s: %d of %d tries, ended after OVS forbade it: %v", busy.name, len(after), tries, after)
	if len(after) > 0 && after[len(after)-1] > bound+slack {
		t.Errorf("%s: ended %s after OVS forbade it, want at most %s", busy.name, after[len(after)-1], bound)
	}
}

// awaitQuiet waits until no packet of a pod's connection with the outside has arrived for one and a half
// leases.
func (r *shortcutRig) awaitQuiet(t *testing.T) time.Time {
	t.Helper()
	passed := func() (sum uint64) {
		counters, err := bpf.ReadCounters(r.pin)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counters {
			if c.Reason == "out" || c.Reason == "out_cached" {
				sum += c.Packets
			}
		}
		return sum
	}
	last, since := passed(), time.Now()
	within(t, "the policy ends the connection", func() error {
		if now := passed(); now != last {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 3*lease/2 {
			return fmt.Errorf("%d packets, the last %s ago", last, quiet)
		}
		return nil
	})
	return time.Now()
}

// lastBefore returns the time of the last answer before the stall that lasts at the time quiet, if it
// is after the time applied.
func lastBefore(r traffic.HoldReport, applied, quiet time.Time) (time.Time, bool) {
	for _, s := range r.Stalls {
		if begin := s.End.Add(-time.Duration(s.MS) * time.Millisecond); begin.After(applied) && begin.Before(quiet) && s.End.After(quiet) {
			return begin, true
		}
	}
	return time.Time{}, false
}
