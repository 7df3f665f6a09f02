package pool

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table writes a line per port, and a last line with the number of ports in each state. It marks a
// used port that the controller holds: the pod keeps it, but Neutron no longer has the port as the
// controller created it.
func Table(w io.Writer, node string, ports []Status) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TAG\tADDRESSES\tMAC\tSTATE\tPOD\tPORT")

	for _, s := range ports {
		var addresses []string
		for _, a := range s.Port.Addresses {
			addresses = append(addresses, a.String())
		}

		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", s.Port.Tag, strings.Join(addresses, ","), s.Port.MAC,
			s.describe(), cmp.Or(s.Owner.Pod, "-"), s.Port.ID)
	}

	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table of ports: %w", err)
	}

	n := count(ports)

	summary := fmt.Sprintf("node %s: %d ports: %d used, %d free, %d resting, %d held",
		node, len(ports), n[Used], n[Free], n[Resting], n[Held])
	if n[Missing] > 0 {
		summary += fmt.Sprintf(", %d missing", n[Missing])
	}

	if _, err := fmt.Fprintln(w, summary); err != nil {
		return fmt.Errorf("write summary of ports: %w", err)
	}

	return nil
}

// describe returns the state of the port for people.
func (s Status) describe() string {
	switch {
	case s.State == Resting: // rounded up, as 0s would look free
		return fmt.Sprintf("resting %s", (s.Rest + time.Second - 1).Truncate(time.Second))
	case s.State == Used && s.Port.Held:
		return "used, held"
	default:
		return string(s.State)
	}
}
