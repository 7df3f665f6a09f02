package leftover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/mount"
)

// labDir matches the directories of labs, by the names in tests and commands.
var labDir = regexp.MustCompile(`(?:/run/ovn-ebpf-[a-z0-9.-]+|/run/lt[0-9]+b?|` + regexp.QuoteMeta(kubelets) + `)/`)

// programs are the daemons of labs. A monitor is the one of ovs-vswitchd.
var programs = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "ovsdb-server", "ovs-vswitchd", "ovn-northd", "ovn-controller",
	"ovnkube", "ovnlab", "monitor",
}

// running is a process that names the directory of a lab.
type running struct {
	*process.Process
	program, dir string
}

// named returns the processes of this mount namespace whose command lines name directories of labs.
func named() ([]running, error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}

	names, err := entries("/proc")
	if err != nil {
		return nil, err
	}

	var found []running

	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}

		p, err := process.Find(pid)
		if err != nil {
			continue // it has ended
		}
		// Elsewhere the same path is another directory.
		if mounts, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil || mounts != own {
			continue
		}

		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if dir := labDir.Find(line); err == nil && dir != nil && p.Alive() {
			program, _, _ := strings.Cut(string(line), "\x00")
			found = append(found, running{p, filepath.Base(program), filepath.Clean(string(dir))})
		}
	}

	return found, nil
}

// daemons returns the daemons whose lab has no record any more.
func daemons() ([]part, error) {
	all, err := named()
	if err != nil {
		return nil, err
	}

	var parts []part

	for _, r := range all {
		if !slices.Contains(programs, r.program) || recorded(r.dir) {
			continue
		}

		parts = append(parts, part{what: fmt.Sprintf("process %d %s", r.PID, r.program), remove: func() (string, error) {
			return lab.RemoveUnclaimed(r.dir, func() error { return r.leader().Stop(0) })
		}})
	}

	return parts, nil
}

func recorded(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lab.StateFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// leader returns the leader of the daemon's process group, if that is a daemon, too: a monitor would
// start its daemon again.
func (r running) leader() *process.Process {
	group, err := unix.Getpgid(r.PID)
	if err != nil {
		return r.Process
	}

	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", group))

	leader, findErr := process.Find(group)
	if err != nil || findErr != nil || !slices.Contains(programs, strings.TrimSpace(string(name))) {
		return r.Process
	}

	return leader
}

// made are the names in directories of labs. Other files are not ours.
var made = regexp.MustCompile(`^(lab\.json\..*|log|pid|kube|bpf|cgroup|central|cloud|vifs\.json|kubeconfig|hosts|images|kubelets|node[0-9]+|vm[0-9]+|plain)$`)

// directories returns the directories of labs without a record.
func directories() ([]part, error) {
	candidates := []string{kubelets + "/"}

	names, err := entries("/run")
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		candidates = append(candidates, filepath.Join("/run", name)+"/")
	}

	var parts []part

	for _, candidate := range candidates {
		dir := filepath.Clean(candidate)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() || labDir.FindString(candidate) != candidate || recorded(dir) {
			continue
		}

		user, err := directoryUser(dir)
		if err != nil {
			return parts, err
		}

		parts = append(parts, part{what: "directory " + dir, user: user, remove: func() (string, error) {
			var user string

			claimed, err := lab.RemoveUnclaimed(dir, func() (err error) {
				if user, err = directoryUser(dir); user != "" || err != nil {
					return err
				}

				if err := mount.RemoveBelow(dir); err != nil {
					return err
				}

				return os.RemoveAll(dir)
			})

			return cmp.Or(claimed, user), err
		}})
	}

	return parts, nil
}

// directoryUser describes who uses the directory of a lab without a record.
func directoryUser(dir string) (string, error) {
	names, err := entries(dir)
	if err != nil {
		return "", err
	}

	for _, name := range names {
		if !made.MatchString(name) {
			return fmt.Sprintf("the owner of %s, which no lab makes,", name), nil
		}
	}

	all, err := named()
	for _, r := range all {
		if r.dir == dir && !slices.Contains(programs, r.program) {
			return fmt.Sprintf("process %d (%s)", r.PID, r.program), nil
		}
	}

	return "", err
}
