package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

const pausedLease = 3 * time.Second

// pair is two replicas, of which the first leads.
type pair struct {
	*world
	one, two *replicaProcess
	given    *given
	pods     int
}

func newPair(t *testing.T, w *world, change func(*processConfig)) *pair {
	t.Helper()
	p := &pair{world: w, given: watchGiven(t, w)}
	w.createNode(1)
	w.createNode(2)
	p.one = startProcessWith(t, w, "one", pausedLease, change)
	p.awaitLeader(p.one)
	p.two = startProcessWith(t, w, "two", pausedLease, change)
	p.awaitReady(p.two)

	return p
}

func (p *pair) awaitLeader(r *replicaProcess) {
	p.t.Helper()
	nbtest.Eventually(p.t, r.identity+" leads", func() bool {
		return r.metric("ovnkube_controller_leader") == "1" && r.metric("ovnkube_controller_ready") == "1"
	})
}

func (p *pair) awaitReady(r *replicaProcess) {
	p.t.Helper()
	nbtest.Eventually(p.t, r.identity+" is ready", func() bool {
		code, _ := r.get("/readyz")
		return code == http.StatusOK
	})
}

// create makes pods and returns their names.
func (p *pair) create(n int) (names []string) {
	p.t.Helper()

	for range n {
		name := fmt.Sprint("p", p.pods)
		p.pods++
		p.createPod(name, fmt.Sprint("node", 1+p.pods%2))
		names = append(names, name)
	}

	return names
}

// awaitAgreement waits until each pod of the API server, and no other, has a port in the
// database with the addresses of its annotation, and fails if two have the same, or if a pod was
// given more than one set of addresses in its life.
func (p *pair) awaitAgreement(endpoints ...string) {
	p.t.Helper()

	var why string

	holds := func() bool {
		pods, err := p.client.CoreV1().Pods("default").List(p.t.Context(), metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}

		for _, endpoint := range endpoints {
			ports := portAddresses(p.t, endpoint)
			users := map[string]string{}

			for _, pod := range pods.Items {
				network, err := annotation.ParsePod(pod.Annotations)
				if err != nil {
					why = fmt.Sprintf("pod %s: %v", pod.Name, err)
					return false
				}

				want := network.MAC.String()
				for _, a := range network.Addresses {
					want += " " + a.Addr().String()
					if users[a.Addr().String()] != "" {
						why = fmt.Sprintf("%s is %s's and %s's", a, users[a.Addr().String()], pod.Name)
						return false
					}

					users[a.Addr().String()] = pod.Name
				}

				if got := ports["default_"+pod.Name]; got != want {
					why = fmt.Sprintf("pod %s is told %s, its port has %q", pod.Name, want, got)
					return false
				}

				delete(ports, "default_"+pod.Name)
			}

			for name := range ports {
				if strings.HasPrefix(name, "default_") {
					why = "a port without a pod: " + name
					return false
				}
			}
		}

		return true
	}
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("annotations and database never agree: %s", why)
		}
	}

	p.given.check(p.t)
}

// portAddresses returns the addresses of each logical switch port.
func portAddresses(t *testing.T, endpoint string) map[string]string {
	t.Helper()

	out, err := exec.Command("ovn-nbctl", "--no-leader-only", "--db="+endpoint, "--format=json", "--columns=name,addresses", "list", "Logical_Switch_Port").Output()
	if err != nil {
		return nil // a member of a cluster may be down
	}

	var table struct{ Data [][2]any }
	if err := json.Unmarshal(out, &table); err != nil {
		t.Fatal(err)
	}

	ports := map[string]string{}

	for _, row := range table.Data {
		name, _ := row[0].(string)
		ports[name], _ = row[1].(string) // a set of one is not written as a set
	}

	return ports
}

// given is what pods were ever told: each is to be told once.
type given struct {
	mu   sync.Mutex // guards told
	told map[string][]string
}

func watchGiven(t *testing.T, w *world) *given {
	t.Helper()

	g := &given{told: map[string][]string{}}
	ctx, cancel := context.WithCancel(t.Context())

	watch, err := w.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)

		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				g.note(pod)
			}
		}
	}()

	t.Cleanup(func() { cancel(); <-done })

	return g
}

func (g *given) note(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()

	said, told := pod.Annotations[annotation.PodNetworks], g.told[pod.Name]
	if said != "" && (len(told) == 0 || told[len(told)-1] != said) {
		g.told[pod.Name] = append(told, said)
	}
}

func (g *given) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()

	for pod, told := range g.told {
		if len(told) > 1 {
			t.Errorf("pod %s was told addresses %d times: %s", pod, len(told), strings.Join(told, ", then "))
		}
	}
}

func (r *replicaProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()

	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

const lostSeries = "ovnkube_controller_leadership_lost_total"

// onlyFull skips what takes long, unless OVN_EBPF_OUTAGE_PAUSED is set, as .ci/full does.
func onlyFull(t *testing.T) {
	t.Helper()

	if os.Getenv("OVN_EBPF_OUTAGE_PAUSED") == "" {
		t.Skip("takes ten seconds: OVN_EBPF_OUTAGE_PAUSED is not set")
	}
}

// A leader that was stopped, and goes on when another leads, writes nothing: neither where it
// sees its lease (the case of a cluster), nor where it cannot and only its clock tells, nor
// where the clock does not tell either and the database refuses it.
func TestPausedLeader(t *testing.T) {
	for _, tt := range []struct {
		name        string
		cut, frozen bool
		reason      string
	}{
		{"the API server answers", false, false, "lease"},
		{"its clock tells", true, false, "lease"},
		{"the database refuses it", true, true, "fenced"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.frozen {
				onlyFull(t)
			}

			w := newWorld(t)
			p := newPair(t, w, func(c *processConfig) { c.Frozen = tt.frozen })
			gone := p.create(6)
			p.awaitAgreement(w.nb.Endpoint)
			p.one.signal(t, syscall.SIGSTOP)

			if tt.cut {
				p.one.api.cut()
			}

			p.awaitLeader(p.two)
			p.create(3)

			for _, name := range gone[:3] { // the old leader hears of it from the database
				w.deletePod(name)
			}

			p.awaitAgreement(w.nb.Endpoint)
			p.one.signal(t, syscall.SIGCONT)
			p.create(9)
			nbtest.Eventually(t, "the old leader gives up: "+tt.reason, func() bool {
				return p.one.metric(lostSeries+`{reason="`+tt.reason+`"}`) == "1"
			})

			if tt.cut {
				p.one.api.mend()
			}

			p.create(3)
			p.awaitAgreement(w.nb.Endpoint)
			p.awaitReady(p.one)
			p.awaitReady(p.two)

			if a, b := p.one.metric("ovnkube_controller_leader"), p.two.metric("ovnkube_controller_leader"); a != "0" || b != "1" {
				t.Errorf("leading: one %s, two %s; want 0 and 1: the paused one took the lease from the other", a, b)
			}

			checkHistory(t, w.nb, changes{of: map[string]int{"node/node1": 1, "node/node2": 1}})
		})
	}
}

// Annotations that arrive late, when another leads, change nothing: they are for a version of the
// pod that is no more. A leader whose renewals are as slow stops writing.
func TestSlowAPIServer(t *testing.T) {
	onlyFull(t)
	w := newWorld(t)
	p := newPair(t, w, func(*processConfig) {})
	p.create(4)
	p.awaitAgreement(w.nb.Endpoint)
	p.one.api.delay(2 * pausedLease) // of its requests; it sees everything in time
	p.create(8)
	p.awaitLeader(p.two)
	p.create(4)
	p.awaitAgreement(w.nb.Endpoint)
	p.one.api.delay(0)
	nbtest.Eventually(t, "the old leader does not lead", func() bool { return p.one.metric("ovnkube_controller_leader") == "0" })
	p.one.api.flushed(t) // its annotations have arrived
	p.awaitReady(p.one)
	p.create(2)
	p.awaitAgreement(w.nb.Endpoint)
	checkHistory(t, w.nb, changes{of: map[string]int{"node/node1": 1, "node/node2": 1}})
}

// The database is a cluster of three, whose leader dies while the controller's is stopped.
func TestPausedLeaderOnRaft(t *testing.T) {
	onlyFull(t)
	members := nbtest.StartRaft(t)

	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}

	w := newWorld(t)
	p := newPair(t, w, func(c *processConfig) { c.NB, c.Frozen = strings.Join(endpoints, ","), true })
	gone := p.create(6)
	p.awaitAgreement(endpoints...)
	p.one.signal(t, syscall.SIGSTOP)
	p.one.api.cut()

	lost := nbtest.Leader(t, members)
	lost.Kill()
	p.awaitLeader(p.two)
	p.create(3)

	for _, name := range gone[:3] {
		w.deletePod(name)
	}

	p.one.signal(t, syscall.SIGCONT)
	p.create(3)
	nbtest.Eventually(t, "the old leader gives up", func() bool { return p.one.metric("ovnkube_controller_leader") == "0" })
	lost.Start()
	p.one.api.mend()
	p.create(3)
	p.awaitAgreement(endpoints...)
}
