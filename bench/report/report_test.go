package report

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

var update = flag.Bool("update", false, "write the goldens anew")

// sample returns a run of each kind with invented figures.
func sample() Runs {
	row := func(variant, test, family, kernel string, instructions float64) bench.Row {
		return bench.Row{Test: test, Variant: variant, Layout: "none", Kernel: kernel, Family: family, Instructions: instructions, Spread: 0.0031}
	}
	run := func(kind string) *results.Run {
		return &results.Run{
			Kind: kind, Date: "2026-11-22T07:00:00Z", Commit: "abc1234", Seed: 1, Boots: 3,
			Machine:  results.Machine{CPU: "CPU <of> this & that", Cores: 2, Memory: 24064, Kernel: "Linux 6.18", Load: 1.53},
			Versions: "QEMU 7.2, go 1.26",
		}
	}
	packets, full, native := run(results.Packets), run(results.Full), run(results.Native)

	for i, v := range bench.AllVariants() {
		for j, test := range bench.Tests() {
			packets.Rows = append(packets.Rows, row(v, test, bench.IPv4, "6.12.1", 10000+1000*float64(i)+100*float64(j)))
		}
	}

	packets.Rows = append(packets.Rows, row(bench.NoOVS, bench.HostUDPRR, bench.IPv6, "6.12.1", 12000), row(bench.EBPF, bench.HostUDPRR, bench.IPv6, "6.12.1", 12300),
		row(bench.EBPF, bench.HostUDPRR, bench.IPv4, "6.1.1", 99999))
	full.Boots = 0
	full.Rows = []bench.Row{row(bench.NoOVS, bench.HostUDPRR, bench.IPv4, "6.1.1", 15000), row(bench.EBPF, bench.HostUDPRR, bench.IPv4, "6.1.1", 15500)}

	for i, n := range []int{1, 100, 10000} {
		for _, of := range []string{"connections", "services"} {
			full.Sweeps = append(full.Sweeps, bench.Point{Of: of, Size: n, Row: row(bench.EBPF, bench.HostUDPRR, bench.IPv4, "6.12.1", 17000+100*float64(i))})
		}

		if i < 2 {
			full.Sweeps = append(full.Sweeps, bench.Point{Of: "connections", Size: n, Row: row(bench.NoOVS, bench.HostUDPRR, bench.IPv4, "6.12.1", 16000)})
		}
	}

	native.Boots = 0
	native.Measures = []results.Measure{
		{Package: "bpf", Name: "Programs/empty", Values: map[string]float64{"ns/op": 12.34, "insns": 0.5}, Spread: map[string]float64{"ns/op": 0.021}},
		{Package: "controller/nb", Name: "Commit/ports=1000", Values: map[string]float64{"written/s": 12345.6}},
	}
	seen := run(results.Watched)
	seen.Boots = 0

	for i, packet := range []string{"host in", "pod in", "pod out"} {
		for j, way := range []string{"no program", "uncounted", "as shipped", "monitor ended", "monitor of others", "monitor beyond its rate", "monitor of all"} {
			seen.Measures = append(seen.Measures, results.Measure{
				Package: "bpf", Name: watchedName(packet, way), Values: map[string]float64{perPacket: float64(5000 + 100*i + 1<<j)}, Spread: map[string]float64{perPacket: 0.001},
			})
		}
	}

	older := *packets
	older.Platform, older.Versions = "debian12", "Open vSwitch 3.1.0"

	older.Rows = nil
	for _, r := range packets.Rows {
		if r.Test == bench.NSUDPRR || r.Test == bench.HostUDPRR {
			r.Instructions *= 1.25
			older.Rows = append(older.Rows, r)
		}
	}

	packets.Platform = results.Platform

	return Runs{results.Packets + "-debian12": &older, results.Packets: packets, results.Full: full, results.Native: native, results.Watched: seen}
}

func TestPageGolden(t *testing.T) {
	golden(t, "page.md", Page(sample()))
}

func golden(t *testing.T, name, got string) {
	t.Helper()

	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Every test is shown exactly once.
func TestSections(t *testing.T) {
	var shown []string
	for _, s := range sections() {
		shown = append(shown, s.tests...)
	}

	slices.Sort(shown)

	if diff := cmp.Diff(slices.Sorted(slices.Values(bench.Tests())), shown); diff != "" {
		t.Errorf("shown tests (-want +got):\n%s", diff)
	}
}

// A run without one of the packets gives an error instead of a zero cost.
func TestWatchedLacks(t *testing.T) {
	r := *sample()[results.Watched]
	if text, err := Watched(&r); err != nil || strings.Count(text, "| ") < 4 {
		t.Fatalf("%q, %v", text, err)
	}

	for i, m := range r.Measures {
		less := r

		less.Measures = slices.Delete(slices.Clone(r.Measures), i, i+1)
		if text, err := Watched(&less); err == nil || !strings.Contains(err.Error(), m.Name) {
			t.Errorf("without %s: %q, %v", m.Name, text, err)
		}
	}
}

func TestProse(t *testing.T) {
	const (
		before = "a <!-- fig ebpf host_udp_rr -->old<!-- /fig -->, b <!-- fig ebpf/no-ovs host_udp_rr ipv6 --><!-- /fig -->.\n"
		want   = "a <!-- fig ebpf host_udp_rr -->13,000<!-- /fig -->, b <!-- fig ebpf/no-ovs host_udp_rr ipv6 -->1.025<!-- /fig -->.\n"
	)
	for _, text := range []string{before, want} {
		got, err := Prose(text, sample())
		if err != nil || got != want {
			t.Errorf("Prose(%q) = %q, %v", text, got, err)
		}
	}

	for _, bad := range []string{
		"<!-- fig ebpf -->1<!-- /fig -->", "<!-- fig warp host_udp_rr -->1<!-- /fig -->", "<!-- fig ebpf/warp host_udp_rr -->1<!-- /fig -->",
		"<!-- fig ebpf host_udp_rr -->1", "<!-- fig ebpf nothing -->1<!-- /fig -->",
	} {
		if got, err := Prose(bad, sample()); err == nil {
			t.Errorf("Prose(%q) = %q, want an error", bad, got)
		}
	}
}
