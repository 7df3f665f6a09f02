package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// Kernel is the kernel of the bars.
const Kernel = "6.12"

// Runs holds the newest run of each kind, as returned by results.Newest.
type Runs map[string]*results.Run

// page builds the page.
type page struct{ strings.Builder }

func (p *page) put(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// Page returns the page with all figures of the runs.
func Page(runs Runs) string {
	p := &page{}
	p.put("# Benchmarks\n\n")
	p.put("This page is made by `make bench-documents` from the newest runs in `bench/results`; nothing in it is typed.\n")
	if r := runs[results.Packets]; r != nil {
		p.packets(r)
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
	if r.Boots > 0 {
		p.put("- boots of each variant: %d; seed of the clients' ports: %d\n", r.Boots, r.Seed)
	}
}

func (p *page) packets(r *results.Run) {
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
	for _, s := range sections() {
		p.section(s, rows)
	}
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
