package report

import (
	"fmt"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// perPacket is the unit of BenchmarkWatched, which in the VM is an instruction.
const perPacket = "ns/packet"

// watchedName returns the name of a packet in BenchmarkWatched.
func watchedName(packet, way string) string { return "Watched/" + packet + "/" + way }

// watchedColumns returns the columns of the table: costs of counting and of monitors per packet.
// Each is the difference of two measurements, more and less, by their names in BenchmarkWatched.
func watchedColumns() []struct{ title, more, less string } {
	return []struct{ title, more, less string }{
		{"all of ours", "as shipped", "no program"},
		{"of it counting", "as shipped", "uncounted"},
		{"a monitor that has ended", "monitor ended", "as shipped"},
		{"one that looks for others", "monitor of others", "no program"},
		{"one beyond its rate", "monitor beyond its rate", "no program"},
		{"one that samples it", "monitor of all", "no program"},
	}
}

// watchedTable returns a table with a line per packet, in instructions.
func watchedTable(r *results.Run) (string, error) {
	values, spread := map[string]float64{}, map[string]float64{}
	for _, m := range r.Measures {
		values[m.Name], spread[m.Name] = m.Values[perPacket], m.Spread[perPacket]
	}

	var b strings.Builder
	b.WriteString("| a packet |")

	for _, c := range watchedColumns() {
		fmt.Fprintf(&b, " %s |", c.title)
	}

	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---:|", len(watchedColumns())))

	for _, packet := range []struct{ title, name string }{
		{"to the host", "host in"}, {"to a pod, an answer", "pod in"}, {"of a pod", "pod out"},
	} {
		fmt.Fprintf(&b, "| %s |", packet.title)

		for _, c := range watchedColumns() {
			more, less := watchedName(packet.name, c.more), watchedName(packet.name, c.less)
			for _, name := range []string{more, less} {
				if values[name] == 0 {
					return "", fmt.Errorf("make table of what watching costs: no %s", name)
				}
			}

			fmt.Fprintf(&b, " %.0f ± %.0f |", values[more]-values[less], max(spread[more]*values[more], spread[less]*values[less]))
		}

		b.WriteString("\n")
	}

	return b.String(), nil
}

// Watched shows the costs of counting and of a monitor.
func Watched(r *results.Run) (string, error) {
	table, err := watchedTable(r)
	if err != nil {
		return "", err
	}

	return fmt.Sprintf("Instructions per packet, differences of medians ± the wider of the two distances of quartiles; Linux %s in a VM, commit %s:\n\n%s", Kernel, r.Commit, table), nil
}

// watched adds the table to the page, with an explanation of the differences.
func (p *page) watched(r *results.Run) {
	p.put("\n## Counting, and a monitor\n\n`make bench KIND=watched`: instructions of a program's run (BPF_PROG_TEST_RUN) on a packet, in the VM, layout `direct`; *no program* is the test run itself. ")
	p.put("*Uncounted* are the same programs without the lookup of a counter and what is added to it. A monitor's lines are its own programs', which run before; ")
	p.put("the kernel's call of one more program is not in them, nor what the reader of the samples does.\n")
	p.provenance(r)

	if text, err := Watched(r); err == nil {
		p.put("\n%s", text)
	}

	p.put("\n| packet, and who looks | instructions |\n|---|---:|\n")

	for _, m := range r.Measures {
		p.put("| %s | %s ± %.2f %% |\n", strings.TrimPrefix(m.Name, "Watched/"), thousands(m.Values[perPacket]), 100*m.Spread[perPacket])
	}
}
