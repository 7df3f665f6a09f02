package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/atomicfile"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// The kernel's connection tracker keeps an established TCP connection for days. But if it has not seen
// the acknowledgement of the last data, it keeps it for the timeout of unacknowledgedSysctl only, which
// is five minutes. With a shortcut, acknowledgements bypass OVS. So OVN would lose the translation of a
// connection that is idle for longer, and the connection would break. While the node has shortcuts, the
// agent therefore makes this timeout as long as that of other established connections.
const (
	unacknowledgedSysctl = "net/netfilter/nf_conntrack_tcp_timeout_unacknowledged"
	establishedSysctl    = "net/netfilter/nf_conntrack_tcp_timeout_established"
	idleRecord           = "unacknowledged-timeout" // in the run directory: the value before
)

// inTimeouts is the source of shortcuts' observers and faults for the timeouts.
const inTimeouts = "timeouts of conntrack"

// keepIdleConnections makes the timeout of unacknowledged data at least as long as that of established
// connections. It first records the value before in rundir. Without connection tracking it does nothing.
func keepIdleConnections(rundir string) error {
	want, err := link.ReadSysctl(establishedSysctl)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	have, err := link.ReadSysctl(unacknowledgedSysctl)
	if err != nil {
		return err
	}

	if have == want {
		return nil
	}

	// A value that was changed while the agent has set another one is the operator's.
	if err := os.MkdirAll(rundir, 0o755); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}

	if err := atomicfile.Write(filepath.Join(rundir, idleRecord), []byte(have+"\n"), 0o644); err != nil {
		return fmt.Errorf("record the timeout of unacknowledged data: %w", err)
	}

	return link.WriteSysctl(unacknowledgedSysctl, want)
}

// releaseIdleConnections undoes keepIdleConnections.
func releaseIdleConnections(rundir string) error {
	path := filepath.Join(rundir, idleRecord)

	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read record of the timeout of unacknowledged data: %w", err)
	}

	err = link.WriteSysctl(unacknowledgedSysctl, strings.TrimSpace(string(before)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove record of the timeout of unacknowledged data: %w", err)
	}

	return nil
}

// keepTimeouts keeps the timeouts of conntrack until ctx ends. While it cannot, no pod has shortcuts.
func (m *ShortcutManager) keepTimeouts(ctx context.Context) error {
	keep := func() {
		err := keepIdleConnections(m.s.RunDir)
		m.setFault(inTimeouts, err)

		what := ""
		if err != nil {
			what = "timeout of unacknowledged data"
		}

		m.setObserver(inTimeouts, what)
	}
	keep()

	return loop.Every(ctx, resync, keep)
}
