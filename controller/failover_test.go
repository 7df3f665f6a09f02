package controller_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestFailover: three replicas, of which the leader crashes, the next one is ended in order,
// and the last crashes again, while pods come. A replica leads each time, every pod gets its row,
// and no row is written twice. How long pods waited is logged: OVN_EBPF_OUTAGE_LEASE=15s has
// the default lease.
func TestFailover(t *testing.T) {
	lease := fromEnv(t, "LEASE", time.ParseDuration, 3*time.Second)
	w := newWorld(t)
	w.createNode(1)
	w.createNode(2)

	replicas := map[string]*replicaProcess{}
	for _, name := range []string{"one", "two", "three"} {
		replicas[name] = startProcess(t, w, name, lease)
	}

	leader := func() string {
		found := ""

		nbtest.Eventually(t, "one leads", func() bool {
			found = ""
			n := 0

			for name, r := range replicas {
				if r.metric("ovnkube_controller_leader") == "1" {
					found = name
					n++
				}
			}

			return n == 1
		})

		return found
	}
	pods := 0
	podComes := func() {
		name := fmt.Sprintf("p%d", pods)
		pods++
		w.createPod(name, fmt.Sprintf("node%d", 1+pods%2))
		w.awaitRows([4]string{"logical_switch_port", "default_" + name, "addresses", "0a:58:0a:f4:"})
	}
	first := leader()

	w.awaitRows([4]string{"logical_router", "GR_node1", "options", "chassis=node1"})

	for range 5 {
		podComes()
	}

	last := first

	for _, crash := range []bool{true, false, true} {
		for name, r := range replicas { // warm: they have listed the cluster
			nbtest.Eventually(t, name+" could take over", func() bool {
				code, _ := r.get("/readyz")
				return code == http.StatusOK
			})
		}

		began := time.Now()

		if crash {
			replicas[last].kill()
		} else {
			replicas[last].end(t)
		}

		podComes()

		waited := time.Since(began)

		delete(replicas, last)

		next := leader()
		t.Logf("%s of the leader %s, lease %s: a pod that came after it had its row %.1f s after the signal; %s leads", map[bool]string{true: "crash", false: "orderly end"}[crash], last, lease, waited.Seconds(), next)
		replicas[last+"'"] = startProcess(t, w, last+"'", lease)

		for range 5 {
			podComes()
		}

		last = next
	}
	// A node gets its subnet and its row once; a pod its port.
	checkHistory(t, w.nb, changes{of: map[string]int{"node/node1": 1, "node/node2": 1}})
}

// end ends the process as a rollout would.
func (r *replicaProcess) end(t *testing.T) {
	t.Helper()

	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%s did not end in order: %v", r.identity, err)
	}

	r.cmd = nil
}
