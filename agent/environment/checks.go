package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Limits of the checks in this file.
const (
	answerWait = 3 * time.Second // for an answer of kube-proxy or the API server
	maxReply   = 64              // bytes of kube-proxy's answer
	maxSkew    = 5 * time.Minute // kube-controller-manager backdates certificates by as much
	minFree    = 1 << 20         // bytes
	maxMissing = 900             // bytes of notReady's list; an Event has 1,024, also for the advice
)

// kubeProxy finds a kube-proxy that runs in the host's network. Then kube-proxy and the agent both
// translate Services, and may choose different endpoints for the same Service.
func (w *Watch) kubeProxy(ctx context.Context) *Fault {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.KubeProxy, http.NoBody)
	if err != nil {
		return nil
	}

	response, err := w.client.Do(request)
	if err != nil {
		return nil // nothing listens
	}
	defer response.Body.Close()

	mode, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil // another program
	}

	switch m := strings.TrimSpace(string(mode)); m {
	case "iptables", "ipvs", "nftables":
		return &Fault{
			KubeProxyRuns,
			"kube-proxy runs on this node, in mode " + m + ", and translates Services too; " +
				"delete its DaemonSet (kubectl -n kube-system delete daemonset kube-proxy), then run kube-proxy --cleanup or restart the node",
		}
	}

	return nil
}

// clock compares this node's clock with that of the API server. An API server that does not answer
// is reported elsewhere.
func (w *Watch) clock(ctx context.Context) *Fault {
	if w.Client == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(w.Server, "/")+"/version", http.NoBody)
	if err != nil {
		return nil
	}

	response, err := w.Client.Do(request)
	if err != nil {
		return nil
	}

	response.Body.Close()

	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil
	}

	skew := time.Since(theirs).Round(time.Second)
	if skew.Abs() <= maxSkew {
		return nil
	}

	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}

	text := fmt.Sprintf(
		"this node's clock is %s %s the API server's: certificates and tokens may be taken for expired; "+
			"synchronise both clocks (chrony, systemd-timesyncd)", skew.Abs(), direction)

	return &Fault{ClockDiffers, text}
}

// disk finds directories in which nothing can be written, because less than minFree is free, or no
// inode. It reports a directory that cannot be inspected in the same way, with the error. The
// running Open vSwitch and agent keep their state in memory, so changes work but do not survive a
// restart. OVN's databases refuse changes.
func (w *Watch) disk(context.Context) *Fault {
	var full []string

	for _, dir := range w.Dirs {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				full = append(full, fmt.Sprintf("%s (%v)", dir, err))
			}

			continue
		}

		free := uint64(math.MaxUint64) // file systems without a limit report no blocks
		if s.Blocks > 0 {
			free = s.Bavail * uint64(s.Bsize) //nolint:gosec // a block's size is positive
		}

		if free < minFree || s.Files > 0 && s.Ffree == 0 {
			full = append(full, dir)
		}
	}

	if full == nil {
		return nil
	}

	dirs := strings.Join(full, ", ")

	return &Fault{DiskFull, "no space left in " + dirs + ": changes do not survive a restart; free space there"}
}

// cgroup finds a host without cgroup2, the unified hierarchy, to which the programs for the host's
// sockets are attached.
func (w *Watch) cgroup(context.Context) *Fault {
	if w.Cgroup == nil {
		return nil
	}

	if err := w.Cgroup(); err != nil {
		return &Fault{
			NoCgroup2,
			err.Error() + ": the host's own sockets reach Services on a longer path, " +
				"and its ports inside the SNAT range are seen late; " +
				"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or name its mount with --cgroup-path",
		}
	}

	return nil
}

// switchAborts finds an ovs-vswitchd that pods can abort, which depends on its release and its
// datapath. An ovs-vswitchd that does not answer is reported elsewhere.
func (w *Watch) switchAborts(ctx context.Context) *Fault {
	if w.SwitchAborts == nil {
		return nil
	}

	if aborts, err := w.SwitchAborts(ctx); err != nil || !aborts {
		return nil
	}

	return &Fault{
		SwitchAborts,
		"Open vSwitch before 3.3 runs with its userspace datapath: any pod can abort ovs-vswitchd, " +
			"and so interrupt every pod of this node, if it connects again from the same source port; " +
			"use the kernel's datapath or Open vSwitch 3.3",
	}
}

// notReady returns a fault if the node was not ready at this run and the one before. The agent
// usually needs less time to start than passes between two runs.
func (w *Watch) notReady() *Fault {
	if w.Missing == nil {
		return nil
	}

	missing := w.Missing()
	if len(missing) == 0 {
		w.unready = 0
		return nil
	}

	w.unready++
	if w.unready < 2 {
		return nil
	}

	text := strings.Join(missing, "; ")
	if len(text) > maxMissing {
		text = text[:maxMissing]
	}

	return &Fault{NotReady, text + "; ovnkube status on the node says what helps"}
}
