package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// triesEnv is the number of busy connections that each kind of policy forbids, with the agent alive and
// with the agent dead.
const triesEnv = "OVN_EBPF_E2E_TRIES"

const (
	defaultTries   = 20
	linesPerPolicy = 10 // connections that one policy forbids, half of each family

	// Intervals of requests, which bound how exactly times are known. With shorter ones, the traffic
	// takes all CPUs of the VM: the API server needed up to 11 s for a policy, and replies came late.
	busyInterval      = 100 * time.Millisecond
	referenceInterval = 50 * time.Millisecond
)

// policyBound is how a kind of policy ends a connection.
type policyBound struct {
	name   string
	kind   networkingv1.PolicyType
	inward bool
	most   time.Duration // in docs/shortcuts.md
}

// testShortcutPolicy: a policy that forbids busy connections ends them within a lease, counted from the
// first packet that OVS drops of a connection that always passes OVS. The test measures each of the
// connections, because they are at different points of their leases. At most one in twenty may be late.
// Of 20 tries, three may be late: if leases were twice as long, 44 % of the tries would be late, and at
// most three of 20 would be late once in about 150 runs.
func testShortcutPolicy(t *testing.T, r *shortcutRig, agent string) {
	tries := defaultTries

	if text := os.Getenv(triesEnv); text != "" {
		var err error
		if tries, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}

	if tries < defaultTries {
		t.Fatalf("%s=%d: fewer than %d tries do not tell one lease from two", triesEnv, tries, defaultTries)
	}

	late := max(tries*5/100, 3)

	for _, b := range []policyBound{
		{"egress", networkingv1.PolicyTypeEgress, false, lease},
		{"ingress", networkingv1.PolicyTypeIngress, true, 2 * lease},
	} {
		t.Run(b.name, func(t *testing.T) {
			var after []time.Duration
			for len(after) < tries {
				ended := r.forbid(t, agent, b)
				keepEnds(t, agent, b, ended)
				after = append(after, ended...)
			}

			slices.Sort(after)
			t.Logf("%d connections ended after OVS forbade them: %v", len(after), after)

			in, _ := slices.BinarySearch(after, lease+1)
			if got := len(after) - in; got > late {
				t.Errorf("%d of %d connections ended later than %s after OVS forbade them, want at most %d", got, len(after), lease, late)
			}
			// The emulated machine may hold each process back for a while.
			const slack = 1500 * time.Millisecond
			if last := after[len(after)-1]; last > b.most+slack {
				t.Errorf("a connection ended %s after OVS forbade it, want at most %s", last, b.most)
			}
		})
	}
}

// forbid opens connections, forbids them by a policy, and returns how long after the first dropped packet
// each of them ended.
func (r *shortcutRig) forbid(t *testing.T, agent string, b policyBound) (after []time.Duration) {
	t.Helper()

	client, err := r.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	policies := client.NetworkingV1().NetworkPolicies("default")

	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "forbid-short"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "short"}}, PolicyTypes: []networkingv1.PolicyType{b.kind},
		},
	}
	defer func() {
		err := policies.Delete(context.WithoutCancel(t.Context()), policy.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}()

	// Packets to other pods always pass OVS.
	other := way{name: "pod to pod", from: r.pod.Host(), to: r.Cluster.pod("b"), port: podPort}
	if b.inward {
		other = way{name: "pod to pod", from: host("b"), to: r.podAddress, port: podPort}
	}

	r.reachable(t, other) // the policy before this one is gone

	references := map[bool]*background{}
	for _, v6 := range []bool{false, true} {
		references[v6] = r.hold(t, "by OVS, "+Result{V6: v6}.Family(), other.from, port(other.to(v6), podPort), time.Hour, "-udp", "-interval", referenceInterval.String())
	}

	var busy []*line

	for i := range linesPerPolicy {
		// A lease begins when the connection does, so these begin at different times.
		time.Sleep(lease / linesPerPolicy)

		busy = append(busy, r.open(t, b.inward, true, i%2 == 1, busyInterval))
	}

	r.short(t, busy...)
	awaitIdle(t)

	before := r.epoch(t)
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	r.awaitQuiet(t)

	if raised := r.epoch(t) - before; (raised > 0) != (agent == "alive") {
		t.Errorf("the epoch was raised %d times, with the agent %s", raised, agent)
	}

	for _, l := range busy {
		if pod, wire, err := r.entries(l); err != nil || pod != nil && pod.Left > 0 || wire != nil && wire.Left > 0 {
			t.Errorf("%s: in use though it is forbidden: %+v and %+v (%v)", l.name, pod, wire, err)
		}

		l.stop(t)
	}

	forbidden := map[bool]time.Time{}

	for v6, reference := range references {
		reference.stop(t)
		report := ending(t, reference)
		t.Logf("%s: %+v", reference.name, report)

		if report.Unanswered.IsZero() {
			t.Fatalf("%s: is not forbidden", reference.name)
		}

		forbidden[v6] = report.Unanswered
	}

	for _, l := range busy {
		report := ending(t, l.background)
		if report.Unanswered.IsZero() {
			t.Errorf("%s: is not forbidden: %+v", l.name, report)
		}

		took := max(0, report.Last.Sub(forbidden[l.pod.Addr().Is6()]).Round(time.Millisecond))
		if took > lease {
			t.Logf("%s: ended after %s: %+v", l.name, took, report)
		}

		after = append(after, took)
	}

	return after
}

// keepEnv is a directory for results that are worth keeping.
const keepEnv = "OVN_EBPF_E2E_KEEP"

// keepEnds appends a line in Go's benchmark format for each connection that a policy has ended, for
// bench/run bound.
func keepEnds(t *testing.T, agent string, b policyBound, after []time.Duration) {
	t.Helper()

	dir := os.Getenv(keepEnv)
	if dir == "" {
		return
	}

	f, err := os.OpenFile(filepath.Join(dir, "bound.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range after {
		_, failed := fmt.Fprintf(f, "BenchmarkBound/policy=%s/agent=%s 1 %d ms/end\n", b.name, agent, d.Milliseconds())
		err = errors.Join(err, failed)
	}

	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// podAddress returns an address of the rig's pod.
func (r *shortcutRig) podAddress(v6 bool) netip.Addr { return choose(v6, r.pod.IP4(), r.pod.IP6()) }

// ending returns the report of a connection that has been stopped.
func ending(t *testing.T, b *background) (report traffic.HoldReport) {
	t.Helper()

	if out := b.wait(t); json.Unmarshal([]byte(out), &report) != nil || report.Received == 0 {
		t.Fatalf("%s: %s", b.name, out)
	}

	return report
}

// awaitIdle waits for a second in which the CPUs are idle for at least 5 % of the time. While they
// are busy, replies wait in sockets and seem to come after their connection has ended.
func awaitIdle(t *testing.T) {
	t.Helper()

	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}

	idle := func() float64 { // seconds, of all CPUs
		stat, err := fs.Stat()
		if err != nil {
			t.Fatal(err)
		}

		return stat.CPUTotal.Idle
	}

	within(t, "idle CPUs", func() error {
		before := idle()

		time.Sleep(time.Second)

		if share := (idle() - before) / float64(runtime.NumCPU()); share < 0.05 {
			return fmt.Errorf("idle for %.0f %% of a second", share*100)
		}

		return nil
	})
}

// awaitQuiet waits until no packet of a pod's connection with the outside has arrived for one and a half
// leases.
func (r *shortcutRig) awaitQuiet(t *testing.T) {
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
}
