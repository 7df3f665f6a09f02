// Package leftover finds and removes what killed tests and labs of this project left on the machine.
//
// It recognises parts by our names and records, and asks for each whether its owner still runs. It
// takes the locks under which labs start, so it never removes a part of a lab that starts meanwhile.
// It leaves /run/ovn-ebpf and /sys/fs/bpf/ovn-ebpf alone: they belong to an installed agent, whose
// programs carry traffic even while no process runs.
package leftover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Options configure Sweep.
type Options struct {
	List bool      // only list
	Out  io.Writer // one line per part
}

// part is a part of the machine that one of our programs made.
type part struct {
	what string // like "netns e2e-n1"
	user string // the process that uses it; "" if it is stale
	// remove removes the part, unless it is used by now. It returns the user.
	remove func() (user string, err error)
	// parts lists what the part consists of; nil if it has only itself.
	parts func() ([]string, error)
}

// Sweep removes everything stale and prints a line for each part. Parts in use stay, with a line
// that names the process. The error has everything that could not be removed.
func Sweep(o Options) error {
	var errs []error
	// Daemons use namespaces and directories, so they precede them.
	for _, find := range []func() ([]part, error){labs, daemons, namespaces, directories, scratches, cgroups} {
		parts, err := find()

		errs = append(errs, err)
		for _, p := range parts {
			errs = append(errs, p.sweep(o))
		}
	}

	return errors.Join(errs...)
}

func (p part) sweep(o Options) error {
	whole := []string{p.what}
	if p.parts != nil && p.user == "" {
		parts, err := p.parts()
		if err != nil {
			return err
		}

		whole = slices.Concat(parts, whole)
	}

	user, err := p.user, error(nil)
	if user == "" && !o.List {
		user, err = p.remove()
	}

	if errors.Is(err, fs.ErrNotExist) {
		return nil // its owner has just removed it
	}

	if err != nil {
		return fmt.Errorf("remove %s: %w", p.what, err)
	}

	if user != "" {
		_, err := fmt.Fprintf(o.Out, "%s stays: %s uses it\n", p.what, user)
		return err
	}

	if p.parts != nil && !o.List {
		left, err := p.parts()
		if err != nil {
			return err
		}

		whole = slices.DeleteFunc(whole, func(part string) bool { return slices.Contains(left, part) })
	}

	done := "removed"
	if o.List {
		done = "would remove"
	}

	for _, part := range whole {
		if _, err := fmt.Fprintf(o.Out, "%s %s\n", done, part); err != nil {
			return err
		}
	}

	return nil
}

// entries returns the names in dir, or none if dir does not exist.
func entries(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}

	return names, nil
}

// short returns the line of lab.Residue with a process's name instead of its command line.
func short(line string) string {
	if fields := strings.Fields(line); len(fields) > 3 && fields[0] == "process" {
		return strings.Join(fields[:3], " ")
	}

	return line
}
