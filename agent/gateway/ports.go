package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// This file calculates with lists of port ranges.

// parsePorts reads the format of net.ipv4.ip_local_reserved_ports: "22,49152-65535". An empty
// string is an empty list.
func parsePorts(s string) ([]cluster.PortRange, error) {
	var out []cluster.PortRange

	for f := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		if f == "" {
			continue
		}

		from, to, isRange := strings.Cut(f, "-")
		if !isRange {
			to = from
		}

		first, errFirst := strconv.ParseUint(from, 10, 16)
		last, errLast := strconv.ParseUint(to, 10, 16)

		if err := cmp.Or(errFirst, errLast); err != nil {
			return nil, fmt.Errorf("parse ports %q: %w", f, err)
		}

		if last < first {
			return nil, fmt.Errorf("parse ports %q: last is below first", f)
		}

		out = append(out, cluster.PortRange{First: uint16(first), Last: uint16(last)})
	}

	return mergePorts(out), nil
}

// formatPorts returns the ranges in the format of parsePorts.
func formatPorts(ranges []cluster.PortRange) string {
	var out []string

	for _, r := range ranges {
		text := r.String()
		if r.First == r.Last {
			text = strconv.Itoa(int(r.First))
		}

		out = append(out, text)
	}

	return strings.Join(out, ",")
}

// mergePorts returns the union, sorted, with adjacent ranges joined.
func mergePorts(ranges []cluster.PortRange) []cluster.PortRange {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b cluster.PortRange) int { return int(a.First) - int(b.First) })

	var out []cluster.PortRange
	for _, r := range sorted {
		if n := len(out); n > 0 && int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}

		out = append(out, r)
	}

	return out
}

// subtractPorts returns the ports of from that are in no range of take.
func subtractPorts(from, take []cluster.PortRange) []cluster.PortRange {
	out := mergePorts(from)

	for _, t := range take {
		var next []cluster.PortRange

		for _, r := range out {
			if !t.Overlaps(r) {
				next = append(next, r)
				continue
			}

			if r.First < t.First {
				next = append(next, cluster.PortRange{First: r.First, Last: t.First - 1})
			}

			if r.Last > t.Last {
				next = append(next, cluster.PortRange{First: t.Last + 1, Last: r.Last})
			}
		}

		out = next
	}

	return out
}
