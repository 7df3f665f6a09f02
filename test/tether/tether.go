// Package tether runs a program so that everything it starts ends with it, whatever ends it.
//
// The program executes itself again, in a PID namespace of its own. The kernel kills all processes
// of that namespace when the outer process ends, also daemons in other sessions, and even after
// SIGKILL. Mounts, /run and the temporary directory belong to the namespace, too.
package tether

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
)

// Environment variables of the processes inside.
const (
	roleEnv    = "OVN_EBPF_TETHER"         // see role
	tempDirEnv = "OVN_EBPF_TETHER_TMPDIR"  // the temporary directory outside
	scratchEnv = "OVN_EBPF_TETHER_SCRATCH" // the directory behind tempDir
)

// vmEnv is set in VMs of test/vm.
const vmEnv = "VM_KERNEL"

// tempDir is the temporary directory inside. Names of unix sockets below it must stay short.
const tempDir = "/run/t"

// A role is the part of a process in a tether.
const (
	first    = "first"    // process 1 of the namespace: prepares it, starts the program, and reaps orphans
	inside   = "inside"   // the program, in the caller's network
	isolated = "isolated" // the program, in its own network
)

// catch returns the signals that the program gets, instead of this process. Ignored ones stay so,
// as with nohup.
func catch() <-chan os.Signal {
	caught := make(chan os.Signal, 8)

	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}

	return caught
}

// Main runs tests in a tether and returns the exit status for os.Exit. Without root it runs them
// directly, because namespaces need root.
//
//	func TestMain(m *testing.M) { os.Exit(tether.Main(m)) }
func Main(m interface{ Run() int }) int { return Run(m.Run) }

// T is what Check uses of testing.T. Programs need not link package testing.
type T interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}

// unitEnv is set by test/unit.
const unitEnv = "OVN_EBPF_UNIT"

// Check fails a test that starts daemons and is not in a tether. In make test-unit, it skips the
// test.
func Check(t T) {
	t.Helper()

	if os.Getenv(unitEnv) != "" {
		t.Skip("it starts daemons: make test runs it")
	}

	if Outside() && needed() {
		t.Fatal("the TestMain of this package does not call tether.Main: a killed test would leave its daemons running")
	}
}

// needed reports whether daemons would outlive the program, and a tether is possible.
func needed() bool { return os.Geteuid() == 0 && os.Getenv(vmEnv) == "" }

// Run runs f in a tether and returns its result. It may be called in a tether: f then belongs to
// that one. Run must be called before the program starts anything, because the program starts again.
// In a VM of test/vm it runs f directly, because that machine ends with the tests.
func Run(f func() int) int {
	if !needed() {
		return f()
	}

	return run(f, false)
}

// RunIsolated runs f in a tether with a new network namespace, whose loopback is up. It needs root.
func RunIsolated(f func() int) int { return run(f, true) }

// Outside reports whether Run will execute the program again, unless that needs root.
func Outside() bool { return os.Getenv(roleEnv) == "" }

// Inside reports whether the process is tethered.
func Inside() bool { return os.Getenv(roleEnv) == inside || Isolated() }

// Isolated reports whether the process is in the network namespace of RunIsolated.
func Isolated() bool { return os.Getenv(roleEnv) == isolated }

// TempDir returns the temporary directory outside of the tether, for files that must outlive the
// program.
func TempDir() string {
	if dir := os.Getenv(tempDirEnv); dir != "" && Inside() {
		return dir
	}

	return os.TempDir()
}

func run(f func() int, isolate bool) int {
	var (
		code int
		err  error
	)

	role, rest, _ := strings.Cut(os.Getenv(roleEnv), " ")
	switch {
	case role == first:
		code, err = prepareAndStart(rest)
	case Inside() && !isolate || Isolated():
		name(filepath.Base(os.Args[0]))
		return f()
	default:
		code, err = outer(isolate)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "tether (needs root):", err)
		return 1
	}

	return code
}

// outer starts this program again in new namespaces and waits for its end.
func outer(isolate bool) (int, error) {
	runtime.LockOSThread() // Pdeathsig: the kernel kills the child when this thread ends

	defer runtime.UnlockOSThread()

	dir, err := scratch.Make("tether")
	if err != nil {
		return 0, err
	}

	defer func() { _ = dir.Remove() }() // test/sweep removes it otherwise

	role, flags := inside, uintptr(syscall.CLONE_NEWNS|syscall.CLONE_NEWPID)
	if isolate {
		role, flags = isolated, flags|syscall.CLONE_NEWNET
	}

	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env:         append(os.Environ(), roleEnv+"="+first+" "+role, tempDirEnv+"="+TempDir(), scratchEnv+"="+dir.Path),
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: unix.SIGKILL},
	}
	caught := catch()

	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // when go ends, stderr is a broken pipe, and the rest must be done

	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go pass(caught, cmd.Process.Pid)
	go func() {
		if parent := awaitParents(); parent != "" {
			_ = cmd.Process.Kill() // fails if it has ended

			fmt.Fprintf(os.Stderr, "tether: %s ended, so its tests end, too\n", parent)
		}
	}()

	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1 after a signal
	}

	return 0, err
}

// prepareAndStart is process 1 of the namespace. It returns the exit status of the program, or 128
// and the signal that killed it, as shells do.
func prepareAndStart(role string) (int, error) {
	dir, err := os.Open(os.Getenv(scratchEnv))
	if err != nil {
		return 0, err
	}

	if err := prepare(dir, role); err != nil {
		return 0, err
	}

	dir.Close()
	name("tether")

	for key, value := range map[string]string{roleEnv: role, "TMPDIR": tempDir} {
		if err := os.Setenv(key, value); err != nil {
			return 0, err
		}
	}

	if err := os.Unsetenv(scratchEnv); err != nil {
		return 0, err
	}

	caught := catch()

	program, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}

	go pass(caught, program.Pid)

	for {
		var status unix.WaitStatus

		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR) || err == nil && pid != program.Pid:
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}

// prepare gives the namespace its own mounts.
func prepare(dir *os.File, role string) error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
		// By descriptor, because the directory may have been below /run.
		{"/proc/self/fd/" + strconv.Itoa(int(dir.Fd())), tempDir, "", unix.MS_BIND},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}

		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}

	if err := os.Chmod(tempDir, 0o777|fs.ModeSticky); err != nil { // as that of the machine
		return err
	}

	if role == isolated {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return fmt.Errorf("set loopback up: %w: %s", err, out)
		}
	}

	return nil
}

// name sets the name that ps shows, which is "exe" otherwise.
func name(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) } // only for people

// pass passes signals on. From a terminal the program gets them also directly.
func pass(caught <-chan os.Signal, pid int) {
	for sig := range caught {
		if sig, ok := sig.(syscall.Signal); ok {
			_ = unix.Kill(pid, sig) // fails if it has ended
		}
	}
}
