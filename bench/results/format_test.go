package results

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGo(t *testing.T) {
	got, err := ParseGo("bpf", `goos: linux
pkg: github.com/ovn-ebpf/ovn-ebpf/bpf
BenchmarkPrograms/host_tcp_v4-2         	 3669962	        31.04 ns/op
BenchmarkPrograms/host_tcp_v4-2         	 3669962	        33.00 ns/op
BenchmarkPrograms/host_tcp_v4-2         	 3669962	        32.00 ns/op
BenchmarkSock/connect,_backend   3532	     33145 ns/op	       249.6 prog-ns/op
--- BENCH: BenchmarkServices/fresh-2
    services_bench_test.go:43: counters: 0.0 MiB
BenchmarkPlannerOneService/10-2         	     132	    864920 ns/op	  249307 B/op	    5610 allocs/op
PASS
ok  	github.com/ovn-ebpf/ovn-ebpf/bpf	4.143s
`)
	if err != nil {
		t.Fatal(err)
	}

	want := []Measure{
		{"bpf", "Programs/host tcp v4", map[string]float64{"ns/op": 32}, map[string]float64{"ns/op": 1.0 / 32}, map[string][]float64{"ns/op": {31.04, 33, 32}}},
		{"bpf", "Sock/connect, backend", map[string]float64{"ns/op": 33145, "prog-ns/op": 249.6}, map[string]float64{"ns/op": 0, "prog-ns/op": 0}, map[string][]float64{"ns/op": {33145}, "prog-ns/op": {249.6}}},
		{"bpf", "PlannerOneService/10", map[string]float64{"ns/op": 864920, "B/op": 249307, "allocs/op": 5610}, map[string]float64{"ns/op": 0, "B/op": 0, "allocs/op": 0}, map[string][]float64{"ns/op": {864920}, "B/op": {249307}, "allocs/op": {5610}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measures (-want +got):\n%s", diff)
	}

	for _, bad := range []string{"", "PASS\nok x 1s\n", "BenchmarkX-2 1 12x ns/op\nPASS\n", "BenchmarkX-2 1 12 ns/op\n"} {
		if got, err := ParseGo("x", bad); err == nil {
			t.Errorf("ParseGo(%q) = %v", bad, got)
		}
	}
}
