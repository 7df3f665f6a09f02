// Command compare tells what has changed between two runs, and what is noise:
//
//	go run ./bench/compare [-kind packets] [BEFORE.json [AFTER.json]]
//
// Without names they are the last two of the kind that are kept in bench/results; with
// one, the other is the last run made (build/bench). A difference counts where
// the rank test of Mann and Whitney says so at 5 %, as with benchstat, and for runs
// that kept too few samples where it is more than the gate of CI lets pass.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bench/history"
	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	kind := flags.String("kind", results.Packets, "packets, full or native")
	kept := flags.String("kept", "bench/results", "the directory of the runs that are kept")
	last := flags.String("last", "build/bench", "the directory of the last run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	before, after, err := choose(flags.Args(), *kind, os.DirFS(*kept), *last)
	if err != nil {
		return err
	}
	changes, err := history.Compare(before, after)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, history.Table(before, after, changes))
	return err
}

func choose(names []string, kind string, kept fs.FS, last string) (before, after *results.Run, err error) {
	switch len(names) {
	case 0:
		runs, err := results.Kept(kept)
		if err != nil {
			return nil, nil, err
		}
		runs = slices.DeleteFunc(runs, func(r *results.Run) bool { return r.Kind != kind })
		if len(runs) < 2 {
			return nil, nil, fmt.Errorf("compare runs: %d of kind %q are kept, want two: name two files", len(runs), kind)
		}
		return runs[len(runs)-2], runs[len(runs)-1], nil
	case 1:
		if before, err = results.Read(names[0]); err == nil {
			after, err = results.Read(filepath.Join(last, before.Kind+".json"))
		}
	case 2:
		if before, err = results.Read(names[0]); err == nil {
			after, err = results.Read(names[1])
		}
	default:
		err = fmt.Errorf("compare runs: %d files, want two at most", len(names))
	}
	return before, after, err
}
