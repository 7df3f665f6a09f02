package openflow_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func BenchmarkFlows(b *testing.B) {
	n := plainNode(10000)
	in := (&rig{ports: openflow.Ports{Uplink: 1, Patch: 2}}).input(n)

	b.ReportAllocs()

	for b.Loop() {
		openflow.Flows(in)
	}
}

// BenchmarkFrontFlows asks a real ovs-vswitchd what the flows of 10,000 Services' frontends have
// counted.
func BenchmarkFrontFlows(b *testing.B) {
	r := newRig(b)
	if _, err := ovs.SyncBundle(b.Context(), r.Dir, bridge, openflow.Flows(r.input(plainNode(10000)))); err != nil {
		b.Fatal(err)
	}

	numbers := []uint8{openflow.CountOf(verdict.Service).Number, openflow.CountOf(verdict.ServiceHosted).Number}

	b.ReportAllocs()

	for b.Loop() {
		fronts, err := ovs.ReadFrontFlows(b.Context(), r.Dir, bridge, numbers)
		if err != nil || len(fronts) < 10000 {
			b.Fatalf("%d flows, error %v", len(fronts), err)
		}

		b.ReportMetric(float64(len(fronts)), "flows")
	}
}
