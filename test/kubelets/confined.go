package kubelets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Confined holds that every process of our pods runs under a seccomp filter, and that a container
// which is not privileged has no capability. The kernel is asked, not the manifest: a runtime
// leaves out the profile of a privileged container.
func (c *Cluster) Confined(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list our pods: %w", err)
	}
	containers := 0
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				continue
			}
			containers++
			if err := confined(pod, s); err != nil {
				errs = append(errs, fmt.Errorf("pod %s, container %s: %w", pod.Name, s.Name, err))
			}
		}
	}
	if containers <= c.opts.Nodes { // an agent each, and a controller
		errs = append(errs, fmt.Errorf("%d containers of ours run", containers))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.step("%d containers of ours are confined", containers)
	return nil
}

func confined(pod *corev1.Pod, s corev1.ContainerStatus) error {
	processes, err := processesOf(s.ContainerID)
	if err != nil {
		return err
	}
	if len(processes) == 0 {
		return fmt.Errorf("no process of %s", s.ContainerID)
	}
	want := []string{"Seccomp:\t2\n"}
	for _, spec := range pod.Spec.Containers {
		context := spec.SecurityContext
		if spec.Name == s.Name && (context == nil || context.Privileged == nil || !*context.Privileged) {
			want = append(want, "NoNewPrivs:\t1\n", "Uid:\t65532\t65532\t65532\t65532\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n")
		}
	}
	for pid, status := range processes {
		for _, line := range want {
			if !strings.Contains(status, line) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
				_, has, _ := strings.Cut(status, "\n"+name+":\t")
				has, _, _ = strings.Cut(has, "\n")
				return fmt.Errorf("process %s: %s is %q, want %s", pid, name, has, value)
			}
		}
	}
	return nil
}

// processesOf returns what /proc/PID/status says, by PID, of the processes in a container's cgroup.
func processesOf(containerID string) (map[string]string, error) {
	_, id, _ := strings.Cut(containerID, "://")
	if id == "" {
		return nil, fmt.Errorf("container ID %q", containerID)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, path := range groups {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), id) {
			continue // it has ended, or is another's
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err == nil && strings.Contains(string(status), "VmRSS:") { // a zombie has none
			out[filepath.Base(filepath.Dir(path))] = string(status)
		}
	}
	return out, nil
}
