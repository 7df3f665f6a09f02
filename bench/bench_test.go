package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func row(variant, test, family string, instructions float64) Row {
	return Row{Test: test, Variant: variant, Layout: "none", Kernel: "6.12", Family: family, Instructions: instructions}
}

// full returns rows that exactly meet every bar.
func full() []Row {
	const ours = 20000

	var rows []Row

	add := func(variant, test, family string, instructions float64) {
		if _, ok := Find(rows, variant, test, family); !ok {
			rows = append(rows, row(variant, test, family, instructions))
		}
	}

	for _, b := range Bars() {
		switch b.Variant {
		case Bridged, ShortcutsBridged, NeverShort, OVNKOnOVN: // their bases have other bars
		default:
			add(b.Variant, b.Test, b.Family, ours)
			add(b.Base, b.baseTest(), b.Family, ours/b.Max)
		}
	}

	for _, b := range Bars() {
		base, _ := Find(rows, b.Base, b.baseTest(), b.Family)
		add(b.Variant, b.Test, b.Family, base.Instructions*b.Max)
	}

	return rows
}

func TestSummarize(t *testing.T) {
	for _, tt := range []struct {
		name           string
		samples        []float64
		median, spread float64
	}{
		{"nothing", nil, 0, 0},
		{"one", []float64{7}, 7, 0},
		{"all the same", []float64{7, 7, 7, 7}, 7, 0},
		{"an outlier does not move it", []float64{100, 100, 100, 100, 9000}, 100, 0},
		{"quartiles", []float64{140, 100, 110, 120, 130}, 120, 20.0 / 120},
	} {
		t.Run(tt.name, func(t *testing.T) {
			median, spread := Summarize(tt.samples)
			if median != tt.median || spread != tt.spread {
				t.Errorf("Summarize(%v) = %v, %v, want %v, %v", tt.samples, median, spread, tt.median, tt.spread)
			}
		})
	}
}

func TestGate(t *testing.T) {
	if err := Gate(full(), Bars()); err != nil {
		t.Errorf("rows that meet every bar: %v", err)
	}
	// Every bar is effective: 1 % more in one row fails, and the error names that row.
	for _, b := range Bars() {
		t.Run(b.Variant+" "+b.Test+" "+b.Family+" "+b.Base, func(t *testing.T) {
			rows := full()
			for i, r := range rows {
				if r.Variant == b.Variant && r.Test == b.Test && r.Family == b.Family {
					rows[i].Instructions *= 1.01
				}
			}

			err := Gate(rows, []Bar{b})
			if err == nil {
				t.Fatal("a slower row was accepted")
			}

			if !strings.Contains(err.Error(), b.Test+" "+b.Family) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not name this one row", err)
			}
		})
	}

	t.Run("not measured", func(t *testing.T) {
		rows := full()[1:]
		if err := Gate(rows, Bars()); err == nil {
			t.Error("a missing row was accepted")
		}

		if err := Gate(nil, Bars()); err == nil {
			t.Error("an empty list was accepted")
		}
	})
}

func TestRowsRoundTrip(t *testing.T) {
	for _, rows := range [][]Row{nil, full()[:1], full()} {
		var buf bytes.Buffer
		if err := Write(&buf, rows); err != nil {
			t.Fatal(err)
		}

		got, err := Read(&buf)
		if err != nil {
			t.Fatal(err)
		}

		if len(rows) == 0 && len(got) == 0 {
			continue
		}

		if diff := cmp.Diff(rows, got); diff != "" {
			t.Errorf("rows changed (-wrote +read):\n%s", diff)
		}
	}
}

// TestRowShape fixes the text of a row for benchstat and the files in bench/results.
func TestRowShape(t *testing.T) {
	var buf bytes.Buffer
	if err := Write(&buf, []Row{{Test: "host_udp_rr", Variant: "ebpf", Layout: "direct", Kernel: "6.12.1", Family: "ipv4", Instructions: 16890.5, Spread: 0.001}}); err != nil {
		t.Fatal(err)
	}

	want := `layout: direct
kernel: 6.12.1

BenchmarkPackets/test=host_udp_rr/variant=ebpf/family=ipv4 1 16890.5 instructions/op 0.001 spread
PASS
`
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestReadRefuses(t *testing.T) {
	const name = "BenchmarkPackets/test=t/variant=v/family=ipv4"
	if rows, err := Read(strings.NewReader(name + " 1 5 instructions/op\nPASS\n")); err != nil || len(rows) != 1 {
		t.Fatalf("a row: %v, %v", rows, err)
	}

	for _, in := range []string{
		"", "{}", name + " 1 5 instructions/op\n", "BenchmarkPackets/test=host_udp_rr 1 5 instructions/op\nPASS\n",
		name + "/surprise=1 1 5 instructions/op\nPASS\n", name + "/services=x 1 5 instructions/op\nPASS\n",
		name + " 1 0 instructions/op\nPASS\n", name + " 1 5 other\nPASS\n", name + " 1 x instructions/op\nPASS\n",
		"BenchmarkOther/test=t/variant=v/family=ipv4 1 5 instructions/op\nPASS\n",
	} {
		if rows, err := Read(strings.NewReader(in)); err == nil {
			t.Errorf("Read(%q) = %v, want an error", in, rows)
		}
	}
}

func TestTable(t *testing.T) {
	rows := []Row{
		row(NoOVS, HostUDPRR, IPv4, 16625), row(Helper, HostUDPRR, IPv4, 25972), row(EBPF, HostUDPRR, IPv4, 16890),
		row(NoOVS, HostUDPRR, IPv6, 17000), row(EBPF, HostUDPRR, IPv6, 18000),
		row(Helper, NSUDPRR, IPv4, 32694),
	}
	rows[1].Spread = 0.0312

	want := `| test | no-ovs | helper | ebpf | bar |
|---|---:|---:|---:|---|
| host_udp_rr | 16625 ± 0.0 % | 25972 ± 3.1 % | 16890 ± 0.0 % | shortcuts ≤ 1.03 × no-ovs: not measured, shortcuts-bridged ≤ 1.10 × no-ovs: not measured, shortcuts+ovn ≤ 1.03 × no-ovs: not measured, ovn-k+ovn ≤ 1.57 × no-ovs: not measured, shortcuts+ovn ≤ 1.002 × ebpf+ovn: not measured, ebpf ≤ 1.03 × no-ovs: met, 1.016, bridged ≤ 1.10 × no-ovs: not measured |
| host_udp_rr (IPv6) | 17000 ± 0.0 % | – | 18000 ± 0.0 % | shortcuts ≤ 1.03 × no-ovs: not measured, ebpf ≤ 1.03 × no-ovs: **missed, 1.059** |
| ns_udp_rr | – | 32694 ± 0.0 % | – | shortcuts+ovn ≤ 0.45 × ovn-k+ovn: not measured, shortcuts+ovn ≤ 0.95 × flowtable: not measured, ebpf ≤ 0.92 × helper: not measured, ebpf ≤ 1.16 × masquerade: not measured, never-short ≤ 1.06 × ebpf: not measured |
`
	if diff := cmp.Diff(want, Table(rows, Bars())); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestMerge(t *testing.T) {
	at := func(test string, instructions, spread float64) Row {
		r := row(EBPF, test, IPv4, instructions)
		r.Spread = spread

		return r
	}
	got := Merge(
		[]Row{at(HostUDPRR, 1000, 0.001), at(HostICMP, 500, 0.02)},
		[]Row{at(HostUDPRR, 1010, 0.003), at(HostICMP, 500, 0.04)},
		[]Row{at(HostUDPRR, 990, 0.002), at(HostICMP, 500, 0.03)},
	)
	// The first row's boots differ by more than its batches, the second row's do not.
	want := []Row{at(HostUDPRR, 1000, 0.02), at(HostICMP, 500, 0.03)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(want, Merge(want)); diff != "" {
		t.Errorf("one boot is what it was (-want +got):\n%s", diff)
	}
}
