package kubelets

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// dump returns the rows of both databases by the database's name, once northd and ovn-controllers
// do not change them any more.
func (t *central) dump(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}

	for _, d := range []database{northbound, southbound} {
		err := t.await(ctx, d.name+" to settle", func() error {
			now, err := t.dumpOf(ctx, d)
			if err != nil {
				return err
			}

			last := out[d.name]
			out[d.name] = now

			return equalRows(last, now)
		})
		if err != nil {
			return nil, err
		}
	}

	return out, nil
}

func (t *central) dumpOf(ctx context.Context, d database) ([]string, error) {
	pod, err := t.leader(ctx, d)
	if err != nil {
		return nil, err
	}

	out, err := t.inside(ctx, pod, d, "ovsdb-client", "--timeout=30", "-f", "json", "dump", socket(d), d.name)
	if err != nil {
		return nil, err
	}

	return rows(out, volatile)
}

// equalRows returns an error with a few of the lines that differ.
func equalRows(before, after []string) error {
	if slices.Equal(before, after) {
		return nil
	}

	const shown = 3

	few := func(lines []string) string { return strings.Join(lines[:min(len(lines), shown)], "\n") }

	return fmt.Errorf("%d rows, before %d; gone:\n%s\nnew:\n%s", len(after), len(before), few(without(before, after)), few(without(after, before)))
}

// volatile reports whether a column changes without a change of the network: progress, times, what
// was learned from packets, and numbers that northd gives to rows with new UUIDs.
func volatile(table, column string) bool {
	switch table {
	case "MAC_Binding", "FDB":
		return true
	case "Logical_Flow":
		return column == "external_ids" // the beginning of a UUID
	}

	return column == "tunnel_key" || strings.HasSuffix(column, "_cfg") || strings.HasSuffix(column, "_timestamp")
}
