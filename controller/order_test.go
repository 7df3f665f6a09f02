package controller_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile/churntest"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestAnyOrder is the property of package reconcile's test of this name with nothing
// stood in for: random changes of a real API server's objects, while whole controllers
// crash and lose the API server and a real Northbound database. In the end that is what a
// cold start makes of the final objects, whatever was refused on the way.
//
// OVN_EBPF_OUTAGE_CHANGES, _FOR (an outage) and _SEED set its size and seed; .ci/full has 5,000.
func TestAnyOrder(t *testing.T) {
	most := 600
	if testing.Short() {
		most = 300
	}

	changes, each := fromEnv(t, "CHANGES", strconv.Atoi, most), fromEnv(t, "FOR", time.ParseDuration, time.Second)
	seed := randomtest.Seed(t, "OVN_EBPF_OUTAGE_SEED")
	t.Logf("OVN_EBPF_OUTAGE_CHANGES=%d", changes)
	w := newWorld(t)
	w.subnets = []controller.ClusterSubnet{
		{Prefix: netip.MustParsePrefix("10.128.0.0/14"), HostLen: 27}, {Prefix: netip.MustParsePrefix("fd00:10:128::/48"), HostLen: 64},
	}
	o := &outages{world: w, t: t, r: rand.New(rand.NewPCG(seed, 0)), lease: 3 * time.Second}
	o.start()
	o.start()
	o.awaitLeader()

	api := newServerAPI(w)
	c := &churntest.Churn{Rand: rand.New(rand.NewPCG(seed, 1)), API: api, Names: max(changes/20, 20), Nodes: 8 + min(changes/1000, 40)}

	changed := make(chan struct{})
	go func() {
		defer close(changed)

		steps(c, changes*2/3)
	}()

	faults := []func(time.Duration){o.withoutDatabase, o.withoutAPI, o.withoutLeader, o.withLeaderCutOff}

	rounds := 0
	for more := true; more || rounds < len(faults); rounds++ {
		faults[(rounds+int(seed%4))%len(faults)](each/2 + time.Duration(o.r.Int64N(int64(each))))
		o.awaitLeader()

		select {
		case <-changed:
			more = false
		default:
		}
	}
	// After a fault everything is compared: what the last changes miss, nothing else finds.
	steps(c, changes/3)
	c.Heal()

	if api.err != nil {
		t.Fatal(api.err)
	}

	o.awaitIdle()
	t.Logf("%s in %d rounds", api, rounds)

	before := o.versions()
	o.compareColdStart()

	if diff := cmp.Diff(before, o.versions()); diff != "" {
		t.Errorf("the cold start changed objects (-before +after):\n%s", diff)
	}
}

// steps makes changes, with short times between in which the leader can work.
func steps(c *churntest.Churn, n int) {
	for range n {
		c.Step()

		if c.Rand.IntN(20) == 0 {
			time.Sleep(time.Duration(c.Rand.IntN(50)) * time.Millisecond)
		}
	}
}

// awaitIdle waits until the leader has nothing to do for two seconds: to be ready it may have
// lost its watches for one.
func (o *outages) awaitIdle() {
	o.t.Helper()

	var since time.Time

	nbtest.Eventually(o.t, "the leader is idle", func() bool {
		r := o.replicas[o.leader()]
		code, _ := r.get("/readyz")

		idle := code == http.StatusOK && r.metric("ovnkube_controller_leader") == "1" &&
			r.metric("ovnkube_controller_queue_length") == "0" && r.metric("ovnkube_controller_waiting_owners") == "0"
		if !idle {
			since = time.Time{}
			return false
		}

		if since.IsZero() {
			since = time.Now()
		}

		return time.Since(since) > 2*time.Second
	})
}

// versions are those of all nodes and pods, which hold what was allocated.
func (o *outages) versions() map[string]string {
	o.t.Helper()

	out := map[string]string{}

	nodes, err := o.client.CoreV1().Nodes().List(o.t.Context(), metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}

	for _, n := range nodes.Items {
		out["node "+n.Name] = fmt.Sprint(n.ResourceVersion, n.Annotations)
	}

	pods, err := o.client.CoreV1().Pods("").List(o.t.Context(), metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}

	for _, p := range pods.Items {
		out["pod "+p.Namespace+"/"+p.Name] = fmt.Sprint(p.ResourceVersion, p.Annotations)
	}

	return out
}
