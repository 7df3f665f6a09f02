package podnet

import (
	"testing"
	"time"
)

// BenchmarkAdd is what CNI ADD does on the node: record, device, addresses, port. The
// wait for ovn-controller, which a stand-in plays, is in ns/op and not in wiring-ms/op.
func BenchmarkAdd(b *testing.B) {
	r := newRig(b)
	var wiring time.Duration
	r.Observe = func(phase string, took time.Duration) {
		if phase == PhaseWiring {
			wiring += took
		}
	}
	p := newPod(b, "c-bench", "bench", 3)
	defer r.installing(b, HostName(p.ContainerID, p.Interface))()
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
