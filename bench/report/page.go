package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// Kernel is the one that the bars are for.
const Kernel = "6.12"

// Runs are the newest of each kind, as results.Newest has them.
type Runs map[string]*results.Run

// Output is a page with the charts that it shows.
type Output struct {
	Page   string
	Charts map[string]string // SVG by file name
}

// page is one in the making.
type page struct {
	strings.Builder
	charts map[string]string
	dir    string // of the charts, as the page sees it
}

func (p *page) put(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// chart puts a picture on the page.
func (p *page) chart(name, alt, svg string) {
	p.charts[name] = svg
	p.put("\n![%s](%s/%s)\n", alt, p.dir, name)
}

// Page is all there is to show of the runs; dir is where its charts will be, as the
// page sees it.
func Page(runs Runs, dir string) Output {
	p := &page{charts: map[string]string{}, dir: dir}
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
	return Output{Page: p.String(), Charts: p.charts}
}

// provenance says where a run is from.
func (p *page) provenance(r *results.Run) {
	p.put("\n- %s, commit %s; %s, %d cores, %s MiB, %s", r.Date, r.Commit, r.Machine.CPU, r.Machine.Cores, thousands(float64(r.Machine.Memory)), r.Machine.Kernel)
	if r.Machine.Load > 0 {
		p.put("; load average %.1f", r.Machine.Load)
	}
	p.put("\n")
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+r.Versions[name])
	}
	if len(versions) > 0 {
		p.put("- %s\n", strings.Join(versions, ", "))
	}
	if r.Boots > 0 {
		p.put("- boots of each variant: %d; seed of the clients' ports: %d\n", r.Boots, r.Seed)
	}
}

func (p *page) packets(r *results.Run) {
	rows := bench.OnKernel(r.Rows, Kernel)
	p.put("\n## The packet path\n\n`make bench`: instructions per operation, of kernel and harness together, in a VM whose nanoseconds are instructions. ")
	p.put("They repeat; they know nothing of cache misses, nor of what a NIC's driver costs. ")
	p.put("An operation is one request and its answer (rr), the same on a connection of its own (crr), or a write of 60 KB (stream).\n")
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

// section is a group of tests that are shown together.
type section struct {
	title, chart string
	tests        []string
}

// sections are all tests, by how their names begin.
func sections() []section {
	all := []section{
		{title: "The node's host", chart: "host.svg"},
		{title: "Pod to pod of another node", chart: "overlay.svg"},
		{title: "Pod to outside", chart: "ns.svg"},
		{title: "Outside to a NodePort", chart: "nodeport.svg"},
		{title: "The node's host to a Service", chart: "service.svg"},
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
	groups := groupsOf(s.tests, rows)
	if len(groups) == 0 {
		return
	}
	p.put("\n### %s\n", s.title)
	p.chart(s.chart, s.title, barChart(s.title+": instructions per operation, first of each = 1", groups))
	p.put("\n%s", bench.TableOf(s.tests, rows, nil))
}

// groupsOf has a group for each test and family: its variants, relative to the first.
func groupsOf(tests []string, rows []bench.Row) []group {
	var groups []group
	for _, test := range tests {
		for _, family := range []string{bench.IPv4, bench.IPv6} {
			g := group{name: testName(test, family)}
			first := 0.0
			for _, v := range bench.AllVariants() {
				r, ok := bench.Find(rows, v, test, family)
				if !ok {
					continue
				}
				if first == 0 {
					first = r.Instructions
				}
				ratio := r.Instructions / first
				g.bars = append(g.bars, bar{v, ratio, fmt.Sprintf("%.3f (%s)", ratio, thousands(r.Instructions))})
			}
			if len(g.bars) > 0 {
				groups = append(groups, g)
			}
		}
	}
	return groups
}

func testName(test, family string) string {
	if family == bench.IPv6 {
		return test + " (IPv6)"
	}
	return test
}
