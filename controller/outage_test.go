package controller_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// Under changes that never stop, the database, the API server or the leader
// goes away again and again, for a while. In the end the database is what a
// cold start makes of the objects, and nothing was written twice: every row
// was inserted once, changed at most as often as its object, and deleted once.
//
// Rounds, the time of each and the seed are set by OVN_EBPF_OUTAGE_ROUNDS,
// _FOR and _SEED; .ci/full has ten of a minute.
func TestOutages(t *testing.T) {
	rounds, each := fromEnv(t, "ROUNDS", strconv.Atoi, 3), fromEnv(t, "FOR", time.ParseDuration, 2*time.Second)
	seed := randomtest.Seed(t, "OVN_EBPF_OUTAGE_SEED")

	w := newWorld(t)
	for i := range 3 {
		w.createNode(i + 1)
	}

	o := &outages{world: w, t: t, r: rand.New(rand.NewPCG(seed, 0)), lease: 3 * time.Second}
	o.start()
	o.start()
	o.awaitLeader()

	c := startChurn(w, rand.New(rand.NewPCG(seed, 1)))
	faults := []func(time.Duration){o.withoutDatabase, o.withoutAPI, o.withoutLeader, o.withLeaderCutOff}

	order := o.r.Perm(len(faults))
	for i := range rounds {
		fault := order[i%len(order)] // every kind before one comes again
		if i >= len(order) {
			fault = o.r.IntN(len(faults))
		}

		faults[fault](each/2 + time.Duration(o.r.Int64N(int64(each))))
		o.awaitLeader()
	}

	changes := c.stop()
	t.Logf("%d changes of the cluster in %d rounds", changes.total, rounds)

	// The cold replica leads beside the leader: nothing may be left to allocate.
	o.awaitAddresses()
	o.compareColdStart()
	checkHistory(t, w.nb, changes)
}

// compareColdStart compares the database with what a replica makes of the objects that has
// an empty one of its own, and leads beside the leader.
func (o *outages) compareColdStart() {
	o.t.Helper()
	cold := nbtest.Start(o.t)
	cfg := config(cold.Endpoint, o.config)
	cfg.LeaderElect, cfg.ClusterSubnets = false, o.subnets
	start(o.t, cfg, "cold").waitReady()

	want := cold.Normal()
	o.t.Logf("%d rows of a cold start", len(want))

	settled := time.Now().Add(time.Minute)
	for diff := "-"; diff != ""; {
		if diff = cmp.Diff(want, o.nb.Normal()); diff != "" && time.Now().After(settled) {
			o.t.Fatalf("database (-as after a cold start +as it is):\n%s", diff)
		}

		time.Sleep(10 * time.Millisecond)
	}
}

// checkHistory reads what was ever written. No name is ever given twice in
// this test, so no row has a reason to come again.
func checkHistory(t *testing.T, s *nbtest.Server, changes changes) {
	t.Helper()

	history, transactions := s.History()
	t.Logf("%d rows in %d transactions", len(history), transactions)

	for _, row := range history {
		if row.Inserts > 1 || row.Deletes > 1 {
			t.Errorf("%s: inserted %d times, deleted %d times", row, row.Inserts, row.Deletes)
		}

		for column, n := range row.Updates {
			if n > changes.of[row.Owner] {
				t.Errorf("%s: column %s changed %d times, its object %d times", row, column, n, changes.of[row.Owner])
			}
		}

		for column, members := range row.References {
			for uuid, n := range members {
				if n > 2+changes.of[policies] { // a pod is isolated or not as policies come and go
					t.Errorf("%s: reference to %s in column %s came and went %d times", row, uuid, column, n)
				}
			}
		}
	}
}

func fromEnv[T any](t *testing.T, name string, parse func(string) (T, error), otherwise T) T {
	t.Helper()

	name = "OVN_EBPF_OUTAGE_" + name

	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}

	v, err := parse(text)
	if err != nil {
		t.Fatalf("parse %s: %v", name, err)
	}

	return v
}

// outages are what can go wrong with a world and its replicas.
type outages struct {
	*world
	t        *testing.T
	r        *rand.Rand
	lease    time.Duration
	replicas []*replicaProcess
	started  int
}

func (o *outages) start() {
	o.t.Helper()
	o.started++
	o.replicas = append(o.replicas, startProcess(o.t, o.world, fmt.Sprint("replica-", o.started), o.lease))
}

// awaitLeader waits until all replicas are ready and one leads.
func (o *outages) awaitLeader() {
	o.t.Helper()

	var state string

	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		leaders, ready := 0, true
		state = ""

		for _, r := range o.replicas {
			code, body := r.get("/readyz")
			leads := r.metric("ovnkube_controller_leader")
			state += fmt.Sprintf("\n%s: leader %s, %d %s", r.identity, leads, code, body)
			ready = ready && code == http.StatusOK

			if leads == "1" {
				leaders++
			}
		}

		if ready && leaders == 1 {
			return
		}

		if time.Now().After(deadline) {
			o.t.Fatalf("never happened: one leads, all are ready:%s", state)
		}
	}
}

// awaitAddresses waits until every pod has some.
func (o *outages) awaitAddresses() {
	o.t.Helper()
	nbtest.Eventually(o.t, "every pod has addresses", func() bool {
		pods, err := o.client.CoreV1().Pods("").List(o.t.Context(), metav1.ListOptions{})
		if err != nil {
			o.t.Fatal(err)
		}

		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Annotations[annotation.PodNetworks] == "" })
	})
}

func (o *outages) leader() int {
	for i, r := range o.replicas {
		if r.metric("ovnkube_controller_leader") == "1" {
			return i
		}
	}

	return 0
}

func (o *outages) withoutDatabase(d time.Duration) {
	o.t.Logf("no database for %s", d)
	o.nb.Kill()
	time.Sleep(d)
	o.nb.Run()
}

func (o *outages) withoutAPI(d time.Duration) {
	o.t.Logf("no API server for %s", d)

	for _, r := range o.replicas {
		r.api.cut()
	}

	time.Sleep(d)

	for _, r := range o.replicas {
		r.api.mend()
	}
}

// withoutLeader kills the leader, as a crash does, and brings another replica later.
func (o *outages) withoutLeader(d time.Duration) {
	i := o.leader()
	o.t.Logf("no %s for %s", o.replicas[i].identity, d)
	o.replicas[i].kill()
	o.replicas = append(o.replicas[:i:i], o.replicas[i+1:]...)

	time.Sleep(d)
	o.start()
}

// withLeaderCutOff takes the API server from the leader alone: it still has
// the database when another begins to lead.
func (o *outages) withLeaderCutOff(d time.Duration) {
	r := o.replicas[o.leader()]
	o.t.Logf("%s without API server for %s", r.identity, d)
	r.api.cut()
	time.Sleep(d)
	r.api.mend()
}
