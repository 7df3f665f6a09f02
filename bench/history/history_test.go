package history

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func packets(instructions, spread float64, samples ...float64) *results.Run {
	row := bench.Row{Test: bench.HostUDPRR, Variant: bench.EBPF, Family: bench.IPv4, Kernel: "6.12.1-x", Instructions: instructions, Spread: spread}
	r := &results.Run{Kind: results.Packets, Date: "d", Commit: "c", Rows: []bench.Row{row}}
	if len(samples) > 0 {
		r.Samples = map[string][]float64{row.Kernel + " " + row.Key(): samples}
	}
	return r
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after *results.Run
		real          bool
	}{
		{"within 1.5 %", packets(1000, 0.001), packets(1014, 0.001), false},
		{"slower", packets(1000, 0.001), packets(1016, 0.001), true},
		{"faster", packets(1016, 0.001), packets(1000, 0.001), true},
		{"within what it spreads", packets(1000, 0.001), packets(1050, 0.03), false},
		{"three samples are not enough", packets(1000, 0.001, 1000, 1000, 1000), packets(1010, 0.001, 1010, 1010, 1010), false},
		{"small, but every sample says so", packets(1000, 0.001, 999, 1000, 1000, 1001, 1002), packets(1010, 0.001, 1008, 1010, 1010, 1011, 1012), true},
		{"large, but samples overlap", packets(1000, 0.001, 900, 1000, 1100, 950, 1200), packets(1100, 0.001, 1100, 990, 1150, 910, 1210), false},
		{"a shift that chance may make", packets(1000, 0.001, 1000, 1001, 1002, 1003, 1004), packets(1002, 0.001, 1000.5, 1002.5, 1003.5, 1004.5, 1005), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Compare(c.before, c.after)
			if err != nil || len(got) != 1 {
				t.Fatalf("got %v, error %v", got, err)
			}
			if got[0].Real != c.real {
				t.Errorf("real %t (%s), want %t", got[0].Real, got[0].Why, c.real)
			}
			table := Table(c.before, c.after, got)
			if strings.Contains(table, "| ~ |") == c.real {
				t.Errorf("table:\n%s", table)
			}
		})
	}
}

func TestCompareRefuses(t *testing.T) {
	native := func(cpu string) *results.Run {
		return &results.Run{Kind: results.Native, Machine: results.Machine{CPU: cpu}, Measures: []results.Measure{
			{Package: "bpf", Name: "Programs", Values: map[string]float64{"ns/op": 1}},
		}}
	}
	other := packets(1, 0)
	other.Rows[0].Variant = bench.NoOVS
	for _, c := range []struct {
		before, after *results.Run
		want          string
	}{
		{native("a"), packets(1, 0), "kind native"},
		{native("a"), native("b"), "machine with a"},
		{other, packets(1, 0), "nothing in common"},
	} {
		if _, err := Compare(c.before, c.after); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
