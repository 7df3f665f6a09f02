package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// Kernel is the kernel for which the bars are, a prefix of its release.
const Kernel = "6.12"

// Runs holds the newest run of each kind and platform, as results.Newest returns them.
type Runs map[string]*results.Run

// page builds the page.
type page struct{ strings.Builder }

func (p *page) put(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// Page returns the page with all figures of the runs.
func Page(runs Runs) string {
	p := &page{}
	p.put("# Benchmarks\n\n")
	p.put("This page is made by `make bench-documents` from the newest runs in `bench/results`; nothing in it is typed.\n")

	if runs[results.Packets] != nil {
		p.packets(runs)
	}

	if r := runs[results.Full]; r != nil {
		p.full(r)
	}

	if r := runs[results.Watched]; r != nil {
		p.watched(r)
	}

	if r := runs[results.Native]; r != nil {
		p.native(r)
	}

	return p.String()
}

// provenance shows the origin of a run.
func (p *page) provenance(r *results.Run) {
	p.put("\n- %s, commit %s; %s, %d cores, %s MiB, %s", r.Date, r.Commit, r.Machine.CPU, r.Machine.Cores, thousands(float64(r.Machine.Memory)), r.Machine.Kernel)

	if r.Machine.Load > 0 {
		p.put("; load average %.1f", r.Machine.Load)
	}

	p.put("\n")

	if r.Versions != "" {
		p.put("- %s\n", r.Versions)
	}

	if r.Platform != "" {
		p.put("- platform %s\n", r.Platform)
	}

	if r.Boots > 0 {
		p.put("- boots of each variant: %d; seed of the clients' ports: %d\n", r.Boots, r.Seed)
	}
}

// packets shows the run of kind results.Packets: the bars, and tables of the tests.
func (p *page) packets(runs Runs) {
	r := runs[results.Packets]
	rows := bench.OnKernel(r.Rows, Kernel)

	p.put("\n## The packet path\n\n`make bench`: instructions per operation, of kernel and harness together, in a VM whose nanoseconds are instructions. ")
	p.put("They repeat; they know nothing of cache misses, nor of what a NIC's driver costs. ")
	p.put("An operation is one request and its answer (rr), the same on a connection of its own (crr), or a write of 60 KB (stream). ")
	p.put("A cell is the median ± the distance of the quartiles, and its ratio to the first cell of the line.\n")
	p.provenance(r)
	p.put("\n### Bars\n\n| test | bar | |\n|---|---|---|\n")

	for _, b := range bench.Bars() {
		verdict := "not measured"
		if ratio, ok := b.Ratio(rows); ok {
			verdict = b.Verdict(ratio)
		}

		p.put("| %s | %s | %s |\n", testName(b.Test, b.Family), b.String(), verdict)
	}

	withoutOVN := slices.DeleteFunc(slices.Clone(rows), onOVN)
	for _, s := range sections() {
		p.section(s, withoutOVN)
	}

	notOnOVN := func(r bench.Row) bool { return !onOVN(r) }
	if withOVN := slices.DeleteFunc(slices.Clone(rows), notOnOVN); len(withOVN) > 0 {
		p.put("\n### On real OVN\n\nnorthd and two chassis, 100 Services, and a policy that allows the pods, instead of a few flows that do the same to these packets.\n")
		p.put("\n%s", bench.TableOf(bench.Tests(), withOVN, nil))
	}

	for _, key := range slices.Sorted(maps.Keys(runs)) {
		if platform, ok := strings.CutPrefix(key, results.Packets+"-"); ok {
			p.platform(platform, rows, runs[key])
		}
	}
}

// onOVN reports whether a row's variant has real OVN.
func onOVN(r bench.Row) bool { return strings.HasSuffix(r.Variant, bench.OnOVN) }

// platform shows the rows of another platform, and the ratios of results.Platform's rows to them.
func (p *page) platform(name string, rows []bench.Row, other *results.Run) {
	p.put("\n### %s beside %s\n\nInstructions on %s, and what the same test costs on %s.\n", name, results.Platform, name, results.Platform)
	p.provenance(other)
	p.put("\n%s", bench.Beside(bench.OnKernel(other.Rows, Kernel), rows))
}

// section is a group of tests shown together.
type section struct {
	title string
	tests []string
}

// sections groups all tests by prefixes of their names.
func sections() []section {
	all := []section{
		{title: "The node's host"},
		{title: "Pod to pod of another node"},
		{title: "Pod to outside"},
		{title: "Outside to a NodePort"},
		{title: "The node's host to a Service"},
	}

	for _, t := range bench.Tests() {
		i := 4

		for j, prefix := range []string{"host_", "overlay_", "ns_", "nodeport_"} {
			if strings.HasPrefix(t, prefix) {
				i = j
			}
		}

		all[i].tests = append(all[i].tests, t)
	}

	return all
}

func (p *page) section(s section, rows []bench.Row) {
	if slices.ContainsFunc(rows, func(r bench.Row) bool { return slices.Contains(s.tests, r.Test) }) {
		p.put("\n### %s\n\n%s", s.title, bench.TableOf(s.tests, rows, nil))
	}
}

func testName(test, family string) string {
	if family == bench.IPv6 {
		return test + " (IPv6)"
	}

	return test
}

// thousands formats a whole number with commas.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}

	return s
}
