package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// TestSeededBeforeAttached covers a node with a pod connection on a port outside the range, opened
// under another gateway. It must be in the programs' table before the first packet reaches them.
func TestSeededBeforeAttached(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.nameSwitch()

	const bridge = "brother" // another gateway's
	r.sw.Vsctl(t, "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev", "--", "set-fail-mode", bridge, "secure")
	testnode.Eventually(t, "connection tracked", func() error {
		if err := r.commit(bridge); err != nil {
			return err
		}

		list, err := ovs.Conntrack(t.Context(), r.s.OVSRunDir)
		if err != nil || len(list) != 1 || list[0].Reply.Dst.Port() != 2200 {
			return fmt.Errorf("tracked: %+v, %w", list, err)
		}

		return nil
	})

	watch := &atAttach{Handler: slog.NewTextHandler(r.test.Output(), nil), pinDir: r.s.PinDir}
	r.log = slog.New(watch)
	r.start()
	watch.mu.Lock()
	defer watch.mu.Unlock()

	if len(watch.seeded) == 0 {
		t.Fatal("nothing was attached")
	}

	for _, n := range watch.seeded {
		if n != 1 {
			t.Errorf("%v connections in the table when each program was attached, want 1", watch.seeded)
		}
	}
}

// TestAttachWaitsForConntrack checks that nothing is attached until ovs-vswitchd reports OVN's
// connections, but only for a limited time.
func TestAttachWaitsForConntrack(t *testing.T) {
	tr := newTestTracker(Settings{Wiring: Wiring{Datapath: ovs.DatapathNetdev}, OVSRunDir: t.TempDir()})
	if err := tr.sync(t.Context(), Node{}); err == nil || !strings.Contains(err.Error(), "earlier connections unknown") {
		t.Errorf("without ovs-vswitchd: %v", err)
	}

	tr.startedAt = time.Now().Add(-firstDumpWait)
	if err := tr.sync(t.Context(), Node{}); err != nil || tr.dumpSucceeded {
		t.Errorf("a while later: %v, dump succeeded %t", err, tr.dumpSucceeded)
	}

	if tr.record.read().Degraded[partTracking] == "" {
		t.Error("it is not said that conntrack cannot be read")
	}
}

// nameSwitch creates the pid file by which ovs-appctl finds ovs-vswitchd. The test's own process
// holds its lock.
func (r *rig) nameSwitch() {
	r.t.Helper()

	pid := os.Getpid()

	f, err := os.Create(r.sw.Dir + "/ovs-vswitchd.pid")
	if err != nil {
		r.t.Fatal(err)
	}

	r.test.Cleanup(func() { f.Close() })

	_, err = fmt.Fprintln(f, pid)
	lock := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})

	link := os.Symlink(r.sw.Dir+"/vswitchd.ctl", fmt.Sprintf("%s/ovs-vswitchd.%d.ctl", r.sw.Dir, pid))
	if err := errors.Join(err, lock, link); err != nil {
		r.t.Fatal(err)
	}
}

// commit sends a SYN of a pod through SNAT to port 2200 of the node.
func (r *rig) commit(bridge string) error {
	out, err := exec.Command("ovs-ofctl", "packet-out", "unix:"+r.sw.Dir+"/"+bridge+".mgmt",
		"in_port=LOCAL,packet="+podSYN+",actions=ct(commit,zone=7,nat(src=172.30.0.11:2200))").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}

	return nil
}

// podSYN is TCP 10.244.0.3:1 → 172.30.0.200:443, SYN.
const podSYN = "020000000001020000000002" + "0800" +
	"4500002800014000400682f20af40003ac1e00c8" +
	"000101bb000000010000000050022000d6480000"

// atAttach records the number of connections in the table when a program was attached.
type atAttach struct {
	slog.Handler
	pinDir string
	mu     sync.Mutex
	seeded []int
}

func (a *atAttach) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Message == "program attached" {
		tables, err := bpf.Tables(a.pinDir)
		if err != nil {
			return err
		}

		a.mu.Lock()
		a.seeded = append(a.seeded, tables["takeover"].Entries)
		a.mu.Unlock()
	}

	return a.Handler.Handle(ctx, rec)
}
