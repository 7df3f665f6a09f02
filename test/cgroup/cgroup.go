// Package cgroup finds and removes cgroups of tests.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Roots returns the root cgroups below /sys/fs/cgroup: of version 2, and of each controller of
// version 1.
func Roots() ([]string, error) {
	procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return nil, err
	}

	roots := []string{}

	for _, file := range append(procs, "/sys/fs/cgroup/cgroup.procs") {
		if _, err := os.Stat(file); err == nil {
			roots = append(roots, filepath.Dir(file))
		}
	}

	return roots, nil
}

// tree returns the cgroup and those below it, each before its children.
func tree(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}

		return err
	})

	return dirs, err
}

// User describes a process in the cgroup or below, and returns "" if they have none.
func User(root string) (string, error) {
	dirs, err := tree(root)
	if err != nil {
		return "", err
	}

	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return "", err
		}

		if pid, _, ok := strings.Cut(string(b), "\n"); ok {
			return fmt.Sprintf("process %s", pid), nil
		}
	}

	return "", nil
}

// Remove removes the cgroup and those below it. They must have no processes.
func Remove(root string) error {
	dirs, err := tree(root)
	if err != nil {
		return err
	}

	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}

	return nil
}
