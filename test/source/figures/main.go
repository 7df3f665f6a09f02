// Command figures prints what the tree weighs and how its prose reads, of all files that git
// tracks:
//
//	go run ./test/source/figures                  the counts of this tree, and the size of bin/ovnkube
//	go run ./test/source/figures -before REVISION the same of another revision, whose binary it builds,
//	                                              and of both the lines in packages that both have
//	go run ./test/source/figures -lint            fails if the prose is worse than its bounds
//
// It must be started in the module's top directory.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	before := flags.String("before", "", "a `revision` to compare this tree with")

	lint := flags.Bool("lint", false, "print the prose alone, and fail if it is worse than its bounds")
	if err := flags.Parse(args); err != nil {
		return err
	}

	now, err := ofTree(".")
	if err != nil {
		return err
	}

	if *lint {
		fmt.Fprint(stdout, now.prose())

		for _, line := range now.tooLong {
			fmt.Fprintln(stdout, line+": the line is too long")
		}

		return now.check(limits())
	}

	if *before != "" {
		then, err := ofRevision(*before)
		if err != nil {
			return err
		}

		had, has := common(then, now)
		fmt.Fprintf(stdout, "%s:\n%s%10d  lines of Go by hand in packages that are there now, too\n\nnow:\n%10d  lines of Go by hand in packages that were there then, too\n",
			*before, then, had, has)
	}

	_, err = fmt.Fprint(stdout, now)

	return err
}

// ofTree counts the files that git tracks in a directory.
func ofTree(dir string) (figures, error) {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = dir

	names, err := list.Output()
	if err != nil {
		return figures{}, fmt.Errorf("list files: %w", err)
	}

	f := figures{packages: map[string]int{}}

	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) { // deleted, not yet committed
			continue
		}

		if err != nil {
			return figures{}, err
		}

		if err := f.add(name, string(text)); err != nil {
			return figures{}, err
		}
	}

	if info, err := os.Stat(filepath.Join(dir, "bin", "ovnkube")); err == nil {
		f.binary = info.Size()
	}

	return f, nil
}

// ofRevision counts in a worktree of its own, and builds the binary there as `make build` does.
func ofRevision(revision string) (f figures, err error) {
	parent, err := scratch.Make("figures")
	if err != nil {
		return f, err
	}
	defer func() { _ = parent.Remove() }() // test/sweep removes it otherwise

	dir := filepath.Join(parent.Path, "tree")
	if out, err := exec.Command("git", "worktree", "add", "--detach", dir, revision).CombinedOutput(); err != nil {
		return f, fmt.Errorf("check out %s: %w: %s", revision, err, out)
	}

	defer func() { err = errors.Join(err, exec.Command("git", "worktree", "remove", "--force", dir).Run()) }()

	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", "bin/", "./cmd/ovnkube")

	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return f, fmt.Errorf("build %s: %w: %s", revision, err, out)
	}

	return ofTree(dir)
}
