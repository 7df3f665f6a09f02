package nb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// balancer returns a load balancer of the group with VIPs first to last, each with a backend.
func balancer(name string, first, last int, backends string) plan.LoadBalancer {
	vips := map[string]string{}
	for i := first; i <= last; i++ {
		vips[fmt.Sprintf("10.96.0.1:%d", 1000+i)] = backends
	}

	return plan.LoadBalancer{Groups: []string{"group"}, Name: name, Protocol: "tcp", VIPs: vips, Options: map[string]string{"reject": "true"}}
}

func within(t *testing.T, db *nb.DB, left int, want map[plan.Key][]plan.Row) *nb.Allowance {
	t.Helper()

	a := &nb.Allowance{Left: float64(left)}

	allowed := map[plan.Key]*nb.Allowance{}
	for k := range want {
		allowed[k] = a
	}

	if errs := db.CommitWithin(t.Context(), want, allowed); len(errs) > 0 {
		t.Fatalf("CommitWithin: %v", errs)
	}

	return a
}

// TestCommitWithin checks that load balancers change by no more than the allowance in one commit,
// and that repeated commits lead to the plan.
func TestCommitWithin(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}})

	key := plan.ServiceKey("ns", "s")

	const unit = 5 // of a VIP with one backend that comes or goes
	for _, step := range []struct {
		name  string
		rows  []plan.Row
		each  []int // the VIPs that change in each commit of at most 40 units
		units int
	}{
		{"20 VIPs come", []plan.Row{balancer("a", 1, 10, "10.0.0.1:80"), balancer("b", 11, 20, "10.0.0.1:80")}, []int{8, 8, 4}, unit},
		{"nothing changes", []plan.Row{balancer("a", 1, 10, "10.0.0.1:80"), balancer("b", 11, 20, "10.0.0.1:80")}, []int{0}, unit},
		{"an endpoint moves", []plan.Row{balancer("a", 1, 10, "10.0.0.2:80"), balancer("b", 11, 20, "10.0.0.2:80")}, []int{7, 7, 6}, unit + 1},
		{"a load balancer goes", []plan.Row{balancer("b", 11, 20, "10.0.0.2:80")}, []int{8, 2}, unit},
		{"all go", nil, []int{8, 2}, unit},
	} {
		want := map[plan.Key][]plan.Row{key: step.rows}
		for i, n := range step.each {
			before := s.VIPs()
			a := within(t, db, 40, want)

			last := i == len(step.each)-1
			if _, held := a.Held[key]; held == last {
				t.Errorf("%s, commit %d: held %v, want %v", step.name, i, held, !last)
			}

			if spent := 40 - int(a.Left); spent != n*step.units {
				t.Errorf("%s, commit %d: %d units, want %d", step.name, i, spent, n*step.units)
			}

			if changed := differences(before, s.VIPs()); changed != n {
				t.Errorf("%s, commit %d: %d VIPs changed, want %d", step.name, i, changed, n)
			}
		}

		dump := s.Dump()

		commit(t, db, want)

		if diff := cmp.Diff(dump, s.Dump()); diff != "" {
			t.Errorf("%s: not as planned (-has +wants):\n%s", step.name, diff)
		}
	}
}

// differences counts the VIPs that differ.
func differences(before, after map[string][]string) int {
	set := map[string]int{}

	for _, list := range before {
		for _, vip := range list {
			set[vip]--
		}
	}

	for _, list := range after {
		for _, vip := range list {
			set[vip]++
		}
	}

	changed := map[string]bool{}

	for vip, n := range set {
		if n != 0 {
			name, _, _ := strings.Cut(vip, "=")
			changed[name] = true
		}
	}

	return len(changed)
}

// TestCommitWithinChangesFewBalancers checks that a commit finishes one load balancer before it
// begins the next, whatever the order of their VIPs.
func TestCommitWithinChangesFewBalancers(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}})

	key := plan.ServiceKey("ns", "s")

	const each = 10

	names := []string{"a", "b", "c"}

	rows := func(backends string) (out []plan.Row) {
		for i, name := range names {
			vips := map[string]string{}
			for j := range each {
				vips[fmt.Sprintf("10.96.0.1:%d", 1000+j*len(names)+i)] = backends
			}

			out = append(out, plan.LoadBalancer{Groups: []string{"group"}, Name: name, Protocol: "tcp", VIPs: vips})
		}

		return out
	}
	for _, step := range []struct {
		name  string
		rows  []plan.Row
		units int // of each VIP
	}{{"they come", rows("10.0.0.1:80"), 5}, {"an endpoint moves", rows("10.0.0.2:80"), 6}, {"they go", nil, 5}} {
		for i := range names {
			before := s.VIPs()

			within(t, db, each*step.units, map[plan.Key][]plan.Row{key: step.rows})

			var changed []string

			for _, name := range names {
				if !slices.Equal(before[name], s.VIPs()[name]) {
					changed = append(changed, name)
				}
			}

			if !slices.Equal(changed, names[i:i+1]) {
				t.Errorf("%s, commit %d changes load balancers %v, want %v", step.name, i, changed, names[i])
			}
		}
	}
}

// TestCommitWithinMovesVIPs checks that a VIP that moves from one load balancer to another is in one
// of them all the time.
func TestCommitWithinMovesVIPs(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	key := plan.ServiceKey("ns", "s")
	commit(t, db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}, key: {balancer("a", 1, 20, "10.0.0.1:80")}})

	all := s.VIPs()["a"]

	want := map[plan.Key][]plan.Row{key: {balancer("b", 1, 10, "10.0.0.1:80"), balancer("c", 11, 20, "10.0.0.1:80")}}
	for commits := 1; ; commits++ {
		a := within(t, db, 40, want)

		now := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(s.VIPs()))...)))
		if !slices.Equal(now, slices.Sorted(slices.Values(all))) {
			t.Fatalf("commit %d: VIPs %q, want each of %q once", commits, now, all)
		}

		if _, held := a.Held[key]; !held {
			break
		}

		if commits == 10 {
			t.Fatal("the VIPs have not moved after 10 commits")
		}
	}

	if got := s.VIPs(); len(got["b"]) != 10 || len(got["c"]) != 10 || len(got) != 2 {
		t.Errorf("load balancers %v, want b and c with 10 VIPs each", got)
	}
}

// TestCommitWithinHolds checks what a used-up allowance holds: changes of load balancers, and
// nothing else.
func TestCommitWithinHolds(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	service, pod := plan.ServiceKey("ns", "s"), plan.PodKey("ns", "p")
	rows := func(version string, lb plan.LoadBalancer) []plan.Row {
		return []plan.Row{plan.LogicalSwitchPort{Switch: "n", Name: "ns_p", Options: map[string]string{"version": version}}, lb}
	}
	commit(t, db, map[plan.Key][]plan.Row{
		plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}, plan.LogicalSwitch{Name: "n"}},
		service:           {balancer("a", 1, 3, "")}, pod: rows("1", balancer("p", 11, 12, "")),
	})

	before := s.VIPs()
	affinity := balancer("a", 1, 2, "")
	affinity.Options = map[string]string{"reject": "true", "affinity_timeout": "60"}
	want := map[plan.Key][]plan.Row{service: {affinity, balancer("b", 4, 5, "")}, pod: rows("2", balancer("p", 11, 14, ""))}

	a := within(t, db, 0, want)
	if diff := cmp.Diff(before, s.VIPs()); diff != "" {
		t.Errorf("load balancers changed without an allowance (-before +after):\n%s", diff)
	}

	if got := s.Nbctl("--bare", "--columns=options", "find", "logical_switch_port", "name=ns_p"); got != "version=2" {
		t.Errorf("options of the pod's port: %q, want version=2", got)
	}

	if diff := cmp.Diff(map[plan.Key][]string{service: {"10.96.0.1:1003"}, pod: nil}, a.Held); diff != "" {
		t.Errorf("held owners with the VIPs that they no longer have (-want +got):\n%s", diff)
	}
	// New options cost all VIPs of the load balancer.
	if a := within(t, db, 1, map[plan.Key][]plan.Row{service: want[service]}); a.Left != 1-3*4 || s.Nbctl("--bare", "--columns=options", "find", "load_balancer", "name=a") != "affinity_timeout=60 reject=true" {
		t.Errorf("%g units are left after a change of the options of 3 VIPs, want %d", a.Left, 1-3*4)
	}

	within(t, db, 1000, want)

	dump := s.Dump()

	commit(t, db, want)

	if diff := cmp.Diff(dump, s.Dump()); diff != "" {
		t.Errorf("not as planned (-has +wants):\n%s", diff)
	}
}

// TestCommitWithinShares checks that VIPs of node ports count in part.
func TestCommitWithinShares(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	key := plan.ServiceKey("ns", "s")

	commit(t, db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}})

	a := &nb.Allowance{Left: 10, Share: func(k plan.Key, vip string) float64 {
		if k != key {
			t.Errorf("share of a VIP of %v", k)
		}

		return 1.0 / 8
	}}

	want := map[plan.Key][]plan.Row{key: {balancer("a", 1, 20, "")}}
	if errs := db.CommitWithin(t.Context(), want, map[plan.Key]*nb.Allowance{key: a}); len(errs) > 0 {
		t.Fatal(errs)
	}

	if len(a.Held) > 0 || a.Left != 0 {
		t.Errorf("%g units are left, held %v, want all of 20 VIPs to take 10", a.Left, a.Held)
	}
}

// TestCommitWithinAfterRefusal checks that a transaction that the database refuses uses up nothing: the
// other owners of the batch are written, and the cause has its error.
func TestCommitWithinAfterRefusal(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	bad, good := plan.ServiceKey("ns", "bad"), plan.ServiceKey("ns", "good")

	commit(t, db, map[plan.Key][]plan.Row{plan.ClusterKey(): {plan.LoadBalancerGroup{Name: "group"}}})

	wrong := balancer("wrong", 1, 5, "")
	wrong.Protocol = "no protocol"
	a := &nb.Allowance{Left: 40}
	want := map[plan.Key][]plan.Row{bad: {wrong}, good: {balancer("right", 11, 15, "")}}

	errs := db.CommitWithin(t.Context(), want, map[plan.Key]*nb.Allowance{bad: a, good: a})
	if errs[bad] == nil || errs[good] != nil {
		t.Errorf("errors %v, want one of %v", errs, bad)
	}

	if got := s.VIPs(); len(got["right"]) != 5 || len(got) != 1 || a.Left != 40-5*4 || len(a.Held) > 0 {
		t.Errorf("load balancers %v, %g units are left, held %v; want 5 VIPs and %d units", got, a.Left, a.Held, 40-5*4)
	}
}
