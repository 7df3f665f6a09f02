package leftover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// kubelets is where test/kubelets has its cluster.
const kubelets = "/var/tmp/ovn-ebpf-kubelets"

// labDirs returns the directories with the record of a lab.
func labDirs() ([]string, error) {
	names, err := entries("/run")
	if err != nil {
		return nil, err
	}

	dirs := []string{kubelets}
	for _, name := range names {
		dirs = append(dirs, filepath.Join("/run", name))
	}

	var found []string

	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, lab.StateFile)); err == nil {
			found = append(found, dir)
		}
	}

	return found, nil
}

func labs() ([]part, error) {
	dirs, err := labDirs()
	if err != nil {
		return nil, err
	}

	var (
		parts []part
		errs  []error
	)

	for _, dir := range dirs {
		name, err := lab.NameOf(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}

			continue
		}

		user, err := lab.User(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		parts = append(parts, part{
			what: fmt.Sprintf("lab %s in %s", name, dir), user: user,
			remove: func() (string, error) { return lab.RemoveStale(dir) },
			parts: func() ([]string, error) {
				found, err := lab.Residue(dir, name)
				// Links in this network are not the lab's: its own end with its namespaces.
				found = slices.DeleteFunc(found, func(line string) bool { return strings.HasPrefix(line, "link ") })
				for i := range found {
					found[i] = short(found[i])
				}

				return found, err
			},
		})
	}

	return parts, errors.Join(errs...)
}

// Namespaces of labs, by the labs' names in tests and commands, and those named by the process ID
// of their owner.
var (
	labNetns = regexp.MustCompile(`^((?:ovnlab|ovnlab\.[a-z0-9.]+|e2e|demo|kubelets|campaign[a-z0-9]*|lt[0-9]+b?)-)(?:n[0-9]+|vm[0-9]+|plain|fab|ext|far|p-.+)$`)
	pidNetns = regexp.MustCompile(`^(?:scale|nstest)-([0-9]+)$`)
)

// namespaces returns the network namespaces without a lab.
func namespaces() ([]part, error) {
	names, err := netns.List("")
	if err != nil {
		return nil, err
	}
	// Listed after the namespaces: a lab has its record before its namespaces.
	dirs, err := labDirs()
	if err != nil {
		return nil, err
	}

	known := map[string]bool{}

	for _, dir := range dirs {
		if name, err := lab.NameOf(dir); err == nil {
			known[name+"-"] = true
		}
	}

	var parts []part

	for _, name := range names {
		match := labNetns.FindStringSubmatch(name)
		if match == nil && !pidNetns.MatchString(name) || match != nil && known[match[1]] {
			continue
		}

		user, err := netnsUser(name)
		if err != nil {
			return parts, err
		}

		parts = append(parts, part{what: "netns " + name, user: user, remove: func() (user string, err error) {
			err = netns.Unheld(func() error {
				if user, err = netnsUser(name); user != "" || err != nil {
					return err
				}

				return netns.Delete(name)
			})
			if errors.Is(err, netns.ErrHeld) {
				return "a lab that starts", nil
			}

			return user, err
		}})
	}

	return parts, nil
}

func netnsUser(name string) (string, error) {
	if match := pidNetns.FindStringSubmatch(name); match != nil {
		pid, err := strconv.Atoi(match[1])
		if err != nil {
			return "", err
		}

		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			return fmt.Sprintf("process %d", pid), nil
		}
	}

	return lab.UserOfNetns(name)
}
