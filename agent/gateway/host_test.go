package gateway

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// TestLateListenerIsReached checks sockets inside the SNAT range that no hook has seen bind, or
// that wait for longer than a bind is remembered. Packets must reach them as soon as they listen.
func TestLateListenerIsReached(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)

	const port, said = 50124, "hello"

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	f := os.NewFile(uintptr(fd), "bound")
	defer f.Close()

	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		t.Fatal(err)
	}

	if bound, err := link.BoundTCP(port, port); err == nil && len(bound) == 0 {
		t.Skip("this kernel lists no sockets that are bound and no more, as none before 6.8 does")
	}

	r.start()

	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}

	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}

	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte(said))
			c.Close()
		}
	}()

	const ask = "exec 3<>/dev/tcp/172.30.0.11/50124 && cat <&3"

	out, err := exec.Command("nsenter", "-t", r.peer, "-n", "timeout", "10", "bash", "-c", ask).CombinedOutput()
	if err != nil || string(out) != said {
		t.Errorf("answered %q, error %v; want %q", out, err, said)
	}
}

// TestFailedGateFallsBack checks a gate that cannot be attached. The programs then get the ports of
// the host's sockets without it, and the part is degraded. If the programs cannot be written either,
// that is an error, and the sockets are listed again in the next round.
func TestFailedGateFallsBack(t *testing.T) {
	r := newServingRig(t)
	log := slog.New(slog.DiscardHandler)

	gate, err := bpf.LoadGate(bpf.CgroupOptions{PinDir: r.dir, CgroupPath: t.TempDir()}) // no cgroup
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()

	u := &hostUse{s: Settings{Cluster: Cluster{SNATPorts: cluster.PortRange{First: 49152, Last: 65535}}}, log: log, record: newRecorder(log), gate: gate}
	if err := u.syncSockets(r.programs.Load()); err != nil || u.scannedAt.IsZero() {
		t.Errorf("fallback: error %v, listed at %v", err, u.scannedAt)
	}

	if text := u.record.read().Degraded[partGate]; text == "" {
		t.Error("the gate is not degraded")
	}

	u.scannedAt = u.scannedAt.Add(-2 * resync)
	before := u.scannedAt

	if err := r.programs.Load().Close(); err != nil {
		t.Fatal(err)
	}

	if err := u.syncSockets(r.programs.Load()); err == nil || !u.scannedAt.Equal(before) {
		t.Errorf("neither gate nor programs can be written: error %v, listed at %v, before at %v", err, u.scannedAt, before)
	}
}
