package kubelets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// processesOf returns /proc/PID/status by PID for the processes in a container's cgroup.
func processesOf(containerID string) (map[string]string, error) {
	_, id, _ := strings.Cut(containerID, "://")
	if id == "" {
		return nil, fmt.Errorf("container ID %q", containerID)
	}

	return processesIn(id)
}

// processesIn is processesOf for a part of the path of a cgroup.
func processesIn(cgroup string) (map[string]string, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}

	out := map[string]string{}

	for _, path := range groups {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), cgroup) {
			continue // it has ended or belongs to another container
		}

		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err == nil && strings.Contains(string(status), "VmRSS:") { // zombies have no VmRSS
			out[filepath.Base(filepath.Dir(path))] = string(status)
		}
	}

	return out, nil
}

// kill kills processes, and returns the number of those that had not ended.
func kill(processes map[string]string) (int, error) {
	killed := 0

	for text := range processes {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return killed, err
		}

		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		} else if !errors.Is(err, syscall.ESRCH) {
			return killed, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}

	return killed, nil
}

// killPod kills all processes of a pod, except its sandbox's, and returns their number.
func killPod(uid types.UID) (int, error) {
	processes, err := processesIn("/pod" + string(uid) + "/")
	if err != nil {
		return 0, err
	}

	maps.DeleteFunc(processes, func(_, status string) bool { return strings.HasPrefix(status, "Name:\tpause\n") })

	return kill(processes)
}

// killContainer kills the processes of a container.
func killContainer(containerID string) error {
	processes, err := processesOf(containerID)
	if err != nil {
		return err
	}

	n, err := kill(processes)
	if err == nil && n == 0 {
		err = fmt.Errorf("container %s has no process", containerID)
	}

	return err
}

// keepDead kills the processes of the pods' containers, and again each that kubelet starts, until
// release. It returns after the first kill.
func keepDead(ctx context.Context, pods []corev1.Pod) (release func() (int, error), err error) {
	killed := 0

	for i := range pods {
		n, err := killPod(pods[i].UID)
		if err == nil && n < 3 { // two databases and northd
			err = fmt.Errorf("pod %s had %d processes", pods[i].Name, n)
		}

		if err != nil {
			return nil, err
		}

		killed += n
	}

	ctx, cancel := context.WithCancel(ctx)

	var (
		failed error
		wg     sync.WaitGroup
	)
	wg.Go(func() {
		for ctx.Err() == nil && failed == nil {
			for i := range pods {
				n, err := killPod(pods[i].UID)
				killed, failed = killed+n, errors.Join(failed, err)
			}

			time.Sleep(50 * time.Millisecond)
		}
	})

	return func() (int, error) {
		cancel()
		wg.Wait()

		return killed, failed
	}, nil
}
