package report

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

func TestFlat(t *testing.T) {
	var points []bench.Point

	add := func(of string, size int, variant, test string, n float64) {
		points = append(points, bench.Point{Of: of, Size: size, Row: bench.Row{Variant: variant, Test: test, Family: bench.IPv4, Instructions: n}})
	}

	for _, b := range flatBars() {
		if b.at != 0 {
			add(b.of, b.at, b.variant, b.test, 1090)
			add(b.of, b.at, b.base, b.test, 1000)

			continue
		}

		add(b.of, 10, b.variant, b.test, 1000)
		add(b.of, 1000, b.variant, b.test, 1010)

		if b.base != "" {
			add(b.of, 1000, b.base, b.test, 900)
			add(b.of, 10, b.base, b.test, 890)
		}
	}

	if err := Flat(points); err != nil {
		t.Error(err)
	}

	if table := flatTable(points); strings.Contains(table, "missed") || strings.Count(table, "\n") != 2+len(flatBars()) {
		t.Errorf("table:\n%s", table)
	}

	add("connections", 1000000, bench.Shortcuts, bench.NSUDPRR, 1110)

	if err := Flat(points); err == nil || err.Error() != "ns_udp_rr of shortcuts by number of connections: 1.110, the bar is 1.10" {
		t.Errorf("a million connections: %v", err)
	}

	add("connections", 1000000, bench.Shortcuts, bench.NSUDPRR, 1050)
	add("connections", 5000, bench.EBPF, bench.HostUDPRR, 1200) // as the kernel grows
	add("connections", 5000, bench.NoOVS, bench.HostUDPRR, 890*1.19)

	if err := Flat(points); err != nil {
		t.Error(err)
	}

	add("connections", 6000, bench.EBPF, bench.HostUDPRR, 1200)
	add("connections", 6000, bench.NoOVS, bench.HostUDPRR, 890*1.1)

	if err := Flat(points); err == nil || !strings.Contains(err.Error(), "host_udp_rr of ebpf by number of connections: 1.091") {
		t.Errorf("more than the kernel grows: %v", err)
	}

	add("services", 10000, bench.EBPF, bench.NSUDPRR, 1030)
	add("connections", 10000, bench.EBPF, bench.HostUDPRR, 1010) // its base has no such size

	err := Flat(points)
	if err == nil || !strings.Contains(err.Error(), "ns_udp_rr of ebpf by number of services: 1.030") ||
		!strings.Contains(err.Error(), "host_udp_rr of ebpf by number of connections: not measured") || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v", err)
	}

	if table := flatTable(points); !strings.Contains(table, "| ns_udp_rr | ebpf, 10,000 services as 10 | ≤ 1.02 | **missed**, 1.030 |") {
		t.Errorf("table:\n%s", table)
	}
}
