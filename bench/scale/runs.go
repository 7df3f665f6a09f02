package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// readResults are the figures of several runs on one machine, as if of one: the
// machine, the platform and the number of nodes are the last one's, as is what an earlier one has
// measured too; runs on another platform or with other numbers of nodes are beside it.
func readResults(paths []string) (*result, error) {
	var all []*result

	for _, path := range paths {
		r, err := readResult(path)
		if err != nil {
			return nil, err
		}

		all = append(all, r)
	}

	out := all[len(all)-1]
	for _, r := range slices.Backward(all[:len(all)-1]) {
		if !out.takes(r) {
			continue
		}

		if !strings.Contains(out.Machine.Commit, r.Machine.Commit) {
			out.Machine.Commit += ", " + r.Machine.Commit
		}
	}

	slices.SortFunc(out.Sizes, func(a, b size) int { return cmp.Compare(a.Pods, b.Pods) })

	return out, nil
}

// takes adds what another run has more, and tells whether that is anything: a size that
// was measured in both is r's.
func (r *result) takes(other *result) bool {
	if other.Nodes != r.Nodes || other.Platform != r.Platform {
		r.beside = append(r.beside, other)
		return true
	}

	more := slices.DeleteFunc(slices.Clone(other.Sizes), func(s size) bool {
		return slices.ContainsFunc(r.Sizes, func(own size) bool { return own.Pods == s.Pods })
	})
	r.Sizes = append(r.Sizes, more...)
	r.Alloc = cmp.Or(r.Alloc, other.Alloc)

	return len(more) > 0
}

func readResult(path string) (*result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	r := &result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}

	return r, nil
}

// compared is one size of a run.
type compared struct {
	*result
	size
}

// comparable returns the sizes that were measured with other numbers of nodes or on another platform,
// too: by nodes, the platforms side by side.
func (r *result) comparable() []compared {
	if len(r.beside) == 0 {
		return nil
	}

	runs := append(slices.Clone(r.beside), r)
	slices.SortFunc(runs, func(a, b *result) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Machine.OVN, b.Machine.OVN))
	})

	var out []compared

	for _, run := range runs {
		for _, s := range run.Sizes {
			if slices.ContainsFunc(r.beside[0].Sizes, func(o size) bool { return o.Pods == s.Pods }) {
				out = append(out, compared{run, s})
			}
		}
	}

	return out
}

// release is the version of OVN that ran.
func (r *result) release() string {
	fields := strings.Fields(r.Machine.OVN)
	if len(fields) == 0 {
		return "unknown"
	}

	return fields[len(fields)-1]
}

// table writes a table's head.
func table(put func(format string, args ...any), columns ...string) {
	put("| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// putNodes writes the table of what was measured with as many pods and another number of nodes or
// another platform, or nothing.
func putNodes(put func(format string, args ...any), r *result) {
	rows := r.comparable()
	if len(rows) == 0 {
		return
	}

	put("\n## By number of nodes and platform\n\n")
	table(put, "nodes", "OVN", "pods", "cold sync", "until northd is done", "restart", "p50 / p99", "our CPU: cold sync", "a change", "ours / northd's", "memory (peak)", "NB, SB memory", "load")

	for _, row := range rows {
		s := row.size
		put("| %d | %s | %d | %.1f s | %.1f s | %.1f s | %.1f / %.1f ms | %.1f s | %.0f µs | %.1f, %.1f %% | %.0f (%.0f) MB | %.0f, %.0f MB | %.1f |\n",
			row.Nodes, row.release(), s.Pods, s.Sync.Seconds, s.Northd, s.Restart.Seconds, s.Churn.P50, s.Churn.P99, s.Sync.CPU["controller"], s.Churn.perChange(),
			100*s.Sync.share(), 100*s.Churn.share(), s.Memory.RSS, s.Memory.PeakRSS, s.NBMemory, s.SBMemory, s.Load)
	}
}

// putRealNode writes what one real node has and does, or nothing.
func putRealNode(put func(format string, args ...any), r *result) {
	rows := slices.DeleteFunc(r.comparable(), func(row compared) bool { return row.Node == nil })
	if len(rows) == 0 {
		return
	}

	put("\n## One real node\n\n")
	put("One node of the cluster has a real ovn-controller and a real ovs-vswitchd with the userspace datapath, set up as an agent does. ")
	put("The chassis and port bindings of the others are written for them. \"Ready\" is from the start of its daemons until it has all flows.\n\n")
	table(put, "nodes", "OVN", "flows", "ovn-controller", "ovs-vswitchd", "ready", "recompute", "its CPU", "load")

	for _, row := range rows {
		n := row.Node
		put("| %d | %s | %d | %.0f MB | %.0f MB | %.1f s | %.2f s | %.2f s | %.1f |\n",
			row.Nodes, row.release(), n.Flows, n.Controller.RSS, n.Vswitchd.RSS, n.Settle, n.Recompute.Seconds, n.Recompute.CPU["ovn-controller"], row.Load)
	}

	put("\nA change, one at a time: from the request to the API server until the node has all its flows. ")
	put("A pod is created on the real node, which has it when ovn-controller reports its flows installed. ")
	put("Of a Service the endpoints change; the end is what `ovn-nbctl --wait=hv sync` reports, whose own work is in its figures. ")
	put("CPU is per change.\n\n")
	table(put, "nodes", "OVN", "change", "number", "p50 / p99", "northd", "ovn-controller", "ovs-vswitchd", "controller", "load")

	for _, row := range rows {
		for _, c := range []struct {
			name string
			probes
		}{{"pod", row.Node.Pods}, {"endpoints", row.Node.Services}} {
			put("| %d | %s | %s | %d | %.0f / %.0f ms | %.0f ms | %.1f ms | %.1f ms | %.1f ms | %.1f |\n",
				row.Nodes, row.release(), c.name, c.Count, c.P50, c.P99, c.CPU["northd"], c.CPU["ovn-controller"], c.CPU["ovs-vswitchd"], c.CPU["controller"], row.Load)
		}
	}
}
