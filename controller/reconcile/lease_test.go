package reconcile_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// jumpingClock is the machine's, and can be moved on as by a suspended machine.
type jumpingClock struct{ ahead atomic.Int64 }

func (c *jumpingClock) now() time.Duration {
	var now unix.Timespec

	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // Linux has it

	return time.Duration(now.Nano() + c.ahead.Load())
}

func (c *jumpingClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

// values are the sums of metrics' series, by name.
func values(t *testing.T, loop *reconcile.Loop) map[string]float64 {
	t.Helper()

	registry := prometheus.NewRegistry()
	registry.MustRegister(loop.Collector())

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]float64{}

	for _, f := range families {
		for _, m := range f.Metric {
			out[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}

	return out
}

// When the clock jumps past the lease, as after a suspended machine, the leader stops before its
// next batch, and leads again by a new election and a new term; a jump that leaves some of the
// lease makes it wait for the next renewal. Nothing is lost, or refused by the database.
func TestClockJumps(t *testing.T) {
	config := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(config)
	s := nbtest.Start(t)
	clock := &jumpingClock{}

	const lease = 3 * time.Second

	loop := startLoopWith(t, config, s.Endpoint, func(o *reconcile.Options) {
		o.Election, o.Clock = &election.Config{Identity: "one", Namespace: "kube-system", Lease: lease}, clock.now
	})
	leads := func() {
		t.Helper()
		nbtest.Eventually(t, "leads and is ready", func() bool { return loop.Leading() && loop.Ready() == nil })
	}
	created := func(name string) {
		t.Helper()
		createPod(t, client, name, nil)
		nbtest.Eventually(t, "pod "+name+" has its port", func() bool {
			return s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=default_"+name) != ""
		})
	}

	leads()
	createNode(t, client, "node1")
	created("a")

	for i, tt := range []struct {
		pod         string
		jump        time.Duration
		terms, lost float64
	}{
		{"b", lease * 3 / 4, 1, 0},
		{"c", 24 * time.Hour, 2, 1},
		{"d", lease, 3, 2},
	} {
		leads()
		clock.jump(tt.jump)
		created(tt.pod)
		leads()

		got := values(t, loop)
		if got["ovnkube_controller_term"] < tt.terms || got["ovnkube_controller_leadership_lost_total"] < tt.lost {
			t.Errorf("jump %d by %s: term %v, lost %v times; want at least %v and %v", i, tt.jump,
				got["ovnkube_controller_term"], got["ovnkube_controller_leadership_lost_total"], tt.terms, tt.lost)
		}
	}
}
