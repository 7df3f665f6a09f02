package status

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes the report as one screen.
func (r Report) Print(w io.Writer) error {
	k := r.Record
	fmt.Fprintf(w, "%s: %s\n", k.Node, r.State)

	if !k.partial() {
		k.printWiring(w)
	}

	if len(r.Passed) > 0 {
		var parts []string
		for _, who := range slices.Sorted(maps.Keys(r.Passed)) {
			parts = append(parts, fmt.Sprintf("%s %d", who, r.Passed[who]))
		}

		fmt.Fprintf(w, "packets: %s\n", strings.Join(parts, ", "))
	}

	fmt.Fprintln(w)

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.State, c.Name, c.Detail)

		if c.Do != "" {
			fmt.Fprintf(table, "\t\t→ %s\n", c.Do)
		}
	}

	return table.Flush()
}

// printWiring prints how the agent was configured.
func (k Record) printWiring(w io.Writer) {
	started := k.Started.Format("2006-01-02 15:04:05")
	if k.Underlay() {
		fmt.Fprintf(w, "mode %s; agent started %s\n", k.Wiring.Mode, started)
		return
	}

	fmt.Fprintf(w,
		"layout %s, backend %s, mode %s, datapath %s; uplink %s, bridge %s; OVN's ports %d-%d; agent started %s\n",
		k.Wiring.Layout, k.Wiring.Backend, k.Wiring.Mode, k.Wiring.Datapath, k.Wiring.Uplink, k.Wiring.Bridge,
		k.Ports.First, k.Ports.Last, started)
}
