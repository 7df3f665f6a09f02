package kubelets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// confinement is what the kernel must show of a container's processes.
type confinement struct {
	capabilities uint64
	user         int // 0: root, who owns the databases and sockets on the node
	filters      int // number of seccomp filters
}

// agentCapabilities are those of docs/chart.md.
const agentCapabilities = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_PERFMON | 1<<unix.CAP_BPF

// containers are the network's, by name. The roles have a filter of their own beside the runtime's.
var containers = map[string]confinement{
	"agent": {agentCapabilities, 0, 2}, "controller": {0, 65532, 2}, "certificates": {0, 65532, 1},
	"northbound": {0, 0, 1}, "southbound": {0, 0, 1}, "northd": {0, 0, 1}, "relay": {0, 0, 1}, "chassis": {0, 0, 1}, "certificate": {0, 0, 1}, "database": {0, 0, 1}, "ovn-controller": {0, 0, 1},
	"vswitchd": {1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW, 0, 1},
}

// Confined checks that every process of the network's pods runs under a seccomp filter and with
// exactly its container's capabilities. It reads the kernel's state, not the manifest, as a runtime
// ignores some settings of a privileged container.
func (c *Cluster) Confined(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list our pods: %w", err)
	}

	number := 0

	var errs []error

	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				continue
			}

			number++

			if err := confined(s); err != nil {
				errs = append(errs, fmt.Errorf("pod %s, container %s: %w", pod.Name, s.Name, err))
			}
		}
	}

	for _, n := range c.lab.Nodes() {
		errs = append(errs, c.pinned(n))
	}

	if number <= c.opts.Nodes { // one agent per node, and a controller
		errs = append(errs, fmt.Errorf("%d containers of ours run", number))
	}

	if err := errors.Join(errs...); err != nil {
		return err
	}

	c.step("%d containers of ours are confined", number)

	return nil
}

// pinned checks that the agent's pins are in a bpffs of the node, and outlive its container. The
// first node had none mounted.
func (c *Cluster) pinned(n *lab.Node) error {
	root, err := c.rootOf(n)
	if err != nil {
		return err
	}

	if _, err := os.Stat(filepath.Join(root, "sys/fs/bpf/ovn-ebpf")); err != nil {
		return fmt.Errorf("pins of %s: %w", n.Name, err)
	}

	return nil
}

// rootOf returns where the machine sees a node's root directory.
func (c *Cluster) rootOf(n *lab.Node) (string, error) {
	init, err := c.lab.Process(n.Name + "-init")
	if err != nil {
		return "", err
	}

	return fmt.Sprintf("/proc/%d/root", init.PID), nil
}

func confined(s corev1.ContainerStatus) error {
	processes, err := processesOf(s.ContainerID)
	if err != nil {
		return err
	}

	if len(processes) == 0 {
		return fmt.Errorf("no process of %s", s.ContainerID)
	}

	own, known := containers[s.Name]
	if !known {
		return errors.New("its confinement is unknown")
	}

	want := []string{"Seccomp:\t2\n", fmt.Sprintf("Seccomp_filters:\t%d\n", own.filters), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", own.user)}
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		want = append(want, fmt.Sprintf("%s:\t%016x\n", set, own.capabilities))
	}

	if own.capabilities == 0 {
		want = append(want, "NoNewPrivs:\t1\n")
	}

	for pid, status := range processes {
		if err := awaitLines(pid, status, want); err != nil {
			return err
		}
	}

	return nil
}

// awaitLines waits five seconds for a process that has ended or whose status has all lines: for a
// probe, the runtime puts a process into the container's cgroup before it confines the process.
func awaitLines(pid, status string, want []string) error {
	for tries := 0; ; tries++ {
		err := lacks(pid, status, want)
		if err == nil || tries == 50 {
			return err
		}

		time.Sleep(100 * time.Millisecond)

		now, gone := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if gone != nil || !strings.Contains(string(now), "VmRSS:") { // ended
			return nil
		}

		status = string(now)
	}
}

// lacks returns an error that names the first of the lines that a process's status lacks.
func lacks(pid, status string, want []string) error {
	for _, line := range want {
		if !strings.Contains(status, line) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			_, has, _ := strings.Cut(status, "\n"+name+":\t")
			has, _, _ = strings.Cut(has, "\n")

			return fmt.Errorf("process %s: %s is %q, want %s", pid, name, has, value)
		}
	}

	return nil
}
