package podnet_test

import (
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
)

// BenchmarkAdd measures the node's part of CNI ADD: record, device, addresses and port. A stand-in
// plays ovn-controller; the wait for it counts in ns/op but not in wiring-ms/op.
func BenchmarkAdd(b *testing.B) {
	r := newRig(b)

	var wiring time.Duration

	r.Observe = func(phase string, took time.Duration) {
		if phase == podnet.PhaseWiring {
			wiring += took
		}
	}

	p := newPod(b, "c-bench", "bench", 3)
	defer r.installing(b, podnet.HostName(p.ContainerID, p.Interface))()

	added := 0

	for b.Loop() {
		if _, err := r.Add(b.Context(), p); err != nil {
			b.Fatal(err)
		}

		added++

		b.StopTimer()

		if err := r.Del(b.Context(), p.ContainerID, p.Interface); err != nil {
			b.Fatal(err)
		}

		b.StartTimer()
	}

	b.ReportMetric(float64(wiring.Microseconds())/1000/float64(added), "wiring-ms/op")
}
