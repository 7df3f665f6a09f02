package openflow_test

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
)

func BenchmarkFlows(b *testing.B) {
	n := plainNode(10000)
	in := (&rig{ports: openflow.Ports{Uplink: 1, Patch: 2}}).input(n)
	b.ReportAllocs()
	for b.Loop() {
		openflow.Flows(in)
	}
}
