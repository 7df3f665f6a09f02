package leftover

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/test/cgroup"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/mount"
	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

// scratches returns the scratch directories of tests and tools.
func scratches() ([]part, error) {
	dirs := []string{os.TempDir(), "/tmp", "/var/tmp"}
	slices.Sort(dirs)

	var parts []part

	for _, dir := range slices.Compact(dirs) {
		found, err := scratch.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return parts, err
		}

		for _, path := range found {
			parts = append(parts, scratchPart("directory", path, func() error {
				if err := mount.RemoveBelow(path); err != nil {
					return err
				}

				return os.RemoveAll(path)
			}))
		}
	}

	return parts, nil
}

// scratchPart is a directory of scratch.Make.
func scratchPart(kind, path string, remove func() error) part {
	ifStale := func(f func() error) (string, error) {
		err := scratch.IfStale(path, f)
		if errors.Is(err, scratch.ErrInUse) {
			return scratch.Owner(path), nil
		}

		return "", err
	}
	user, _ := ifStale(func() error { return nil }) // remove returns the error

	return part{what: kind + " " + path, user: user, remove: func() (string, error) { return ifStale(remove) }}
}

// nodeCgroup matches the cgroups of nodes of test/kubelets.
var nodeCgroup = regexp.MustCompile(`^kubelets-n[0-9]+$`)

// cgroups returns the cgroups of bpf's tests and of test/kubelets.
func cgroups() ([]part, error) {
	roots, err := cgroup.Roots()
	if err != nil {
		return nil, err
	}

	var (
		parts []part
		nodes []string
	)

	for _, root := range roots {
		found, err := scratch.List(root)
		if err != nil {
			return parts, err
		}

		for _, path := range found {
			parts = append(parts, scratchPart("cgroup", path, func() error { return cgroup.Remove(path) }))
		}

		of, err := filepath.Glob(filepath.Join(root, "kubelets-n*"))
		if err != nil {
			return parts, err
		}

		nodes = append(nodes, of...)
	}
	// Asked after the search: a cluster has its record before its cgroups.
	user, err := lab.User(kubelets)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return parts, err
	}

	for _, path := range nodes {
		if !nodeCgroup.MatchString(filepath.Base(path)) {
			continue
		}

		parts = append(parts, part{what: "cgroup " + path, user: user, remove: func() (string, error) {
			var user string

			claimed, err := lab.RemoveUnclaimed(kubelets, func() (err error) {
				if user, err = cgroup.User(path); user != "" || err != nil {
					return err
				}

				return cgroup.Remove(path)
			})

			return cmp.Or(claimed, user), err
		}})
	}

	return parts, nil
}
