package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// readResults combines the figures of several runs on one machine. The result is the last run with
// the sizes that only earlier runs have measured. Runs on another platform, or with another number
// of nodes, are shown beside it.
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
		if isUsed := out.add(r); !isUsed {
			continue
		}

		if !strings.Contains(out.Machine.Commit, r.Machine.Commit) {
			out.Machine.Commit += ", " + r.Machine.Commit
		}
	}

	slices.SortFunc(out.Sizes, func(a, b size) int { return cmp.Compare(a.Pods, b.Pods) })

	return out, nil
}

// add adds the sizes and the allocation of an earlier run that r lacks, or puts a run that is not
// comparable beside r. It reports whether it has added sizes or put the run beside r. Of a size
// that both have measured, r keeps its own figures.
func (r *result) add(other *result) bool {
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

// compared is one size of a run, a row of the tables that compare runs.
type compared struct {
	*result
	size
}

// sideBySide returns the sizes of r and of the runs beside it, sorted by number of nodes and
// version of OVN. Sizes that the first run beside r has not measured are omitted. Without runs
// beside r, it returns nil.
func (r *result) sideBySide() []compared {
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

// ovnVersion returns the version of OVN in the run.
func (r *result) ovnVersion() string {
	fields := strings.Fields(r.Machine.OVN)
	if len(fields) == 0 {
		return "unknown"
	}

	return fields[len(fields)-1]
}
