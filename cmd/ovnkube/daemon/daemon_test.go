package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// testDaemon in the environment makes this binary a daemon controlled by the variable's words.
const testDaemon = "TEST_DAEMON"

func TestMain(m *testing.M) {
	words, is := os.LookupEnv(testDaemon)
	if !is {
		os.Exit(tether.Main(m))
	}

	err := daemonMain(strings.Fields(words))
	if errors.Is(err, ErrDetached) {
		return
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// daemonMain is a daemon with this package's flags. "fail" ends before it is up, "slow" has two
// parts that become ready one after another, "timers" runs timersMain, "confined" runs
// confinedMain. Otherwise it is ready at once.
func daemonMain(words []string) error {
	if slices.Equal(words, []string{"timers"}) {
		return timersMain()
	}

	if len(words) == 3 && words[0] == "confined" {
		return confinedMain(words[1], words[2])
	}

	var o Options

	f := flag.NewFlagSet("d", flag.ContinueOnError)
	o.Declare(f, "ovn-test")
	o.DeclareLog(f)

	if err := parse(f, os.Args[1:]); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	p, err := o.Start(ctx)
	if err != nil {
		return err
	}
	defer p.End()

	switch {
	case slices.Contains(words, "fail"):
		return errors.New("no such uplink")
	case slices.Contains(words, "slow"):
		p.Expect("one")
		p.Expect("two")
		p.Progress("one", "")
		p.Progress("two", "the\nweather")
		p.Progress("two", "")
	default:
		p.Progress("", "")
	}

	<-ctx.Done()

	return nil
}

// start runs the test daemon and waits for the command.
func start(t *testing.T, words string, args ...string) (string, error) {
	t.Helper()

	cmd := exec.Command("/proc/self/exe", args...)

	cmd.Env = append(os.Environ(), testDaemon+"="+words)
	out, err := cmd.CombinedOutput()

	return string(out), err
}

// The command returns when the daemon is up, in another session, with its process ID in the pid
// file. A second daemon is refused. A signal ends the daemon and removes the file.
func TestDetach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "d.pid")
	if out, err := start(t, "", "--pidfile="+path, "--detach", "-vconsole:emer"); err != nil || out != "" {
		t.Fatal(err, out)
	}

	pid, err := Running(path)
	if err != nil || pid == 0 {
		t.Fatal("not running", err)
	}

	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })

	if text, err := os.ReadFile(path); err != nil || string(text) != strconv.Itoa(pid)+"\n" {
		t.Errorf("pid file %q, %v", text, err)
	}

	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session %d of process %d, %v", sid, pid, err)
	}

	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != "/" {
		t.Errorf("directory %s, %v", dir, err)
	}

	for fd := range 3 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil || to != os.DevNull {
			t.Errorf("descriptor %d is %s, %v", fd, to, err)
		}
	}

	if out, err := start(t, "", "--pidfile="+path, "--detach"); err == nil || !strings.Contains(out, "it runs already: process "+strconv.Itoa(pid)) {
		t.Errorf("a second: %v %s", err, out)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	if err := Stop(ctx, path); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pid file still exists: %v", err)
	}

	if err := Stop(ctx, path); err != nil {
		t.Errorf("stop without a process: %v", err)
	}
}

// The command reports why the daemon did not start.
func TestDetachFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.pid")

	out, err := start(t, "fail", "--pidfile="+path, "--detach")
	if err == nil || !strings.Contains(out, "no such uplink") || !strings.Contains(out, "has ended") {
		t.Errorf("%v: %s", err, out)
	}

	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a pid file exists: %v", err)
	}
}

// The pid file of a killed process is free.
func TestStalePIDFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.pid")
	if out, err := start(t, "", "--pidfile="+path, "--detach"); err != nil {
		t.Fatal(err, out)
	}

	pid, err := Running(path)
	if err != nil {
		t.Fatal(err)
	}

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if pid, err = Running(path); err != nil || pid == 0 || time.Now().After(deadline) {
			break
		}
	}

	if err != nil || pid != 0 {
		t.Fatal("still holds it", pid, err)
	}

	p, err := WritePIDFile(path, false)
	if err != nil {
		t.Fatal(err)
	}

	p.Remove()
}

// systemd gets READY when all parts are ready, and before that a status of the missing parts.
func TestReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")

	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	t.Setenv("NOTIFY_SOCKET", path)

	cmd := exec.Command("/proc/self/exe")

	cmd.Env = append(os.Environ(), testDaemon+"=slow")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	next := func() string {
		buffer := make([]byte, 1024)

		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}

		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}

		return string(buffer[:n])
	}
	for _, want := range []string{"STATUS=waits for two: not begun", "STATUS=waits for two: the; weather", "READY=1\nSTATUS=ready"} {
		if got := next(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if got := next(); got != "STOPPING=1" {
		t.Errorf("at the end %q", got)
	}
}

// Spawn with UntilReady waits for readiness and reports what is missing meanwhile.
func TestSpawnUntilReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.pid")
	t.Setenv(testDaemon, "slow")

	var waited []string

	err := Spawn(t.Context(), Background{
		Args: []string{"d", "--detach", "--pidfile=" + path}, UntilReady: true, Waiting: func(s string) { waited = append(waited, s) },
	})
	if !errors.Is(err, ErrDetached) {
		t.Fatal(err)
	}

	if err := Stop(t.Context(), path); err != nil {
		t.Error(err)
	}

	if want := []string{"two: not begun", "two: the; weather"}; !slices.Equal(waited, want) {
		t.Errorf("waited for %q, want %q", waited, want)
	}
}
