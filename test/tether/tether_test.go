package tether_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// programEnv makes the test binary another program in a tether: "tests" runs the tests, anything
// else is a shell script.
const programEnv = "TETHER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch program := os.Getenv(programEnv); program {
	case "":
		os.Exit(m.Run()) // the tests look at tethers from outside
	case "tests":
		os.Exit(tether.RunIsolated(m.Run))
	default:
		os.Exit(tether.Run(func() int {
			cmd := exec.Command("sh", "-c", program)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr

			var exit *exec.ExitError
			if err := cmd.Run(); errors.As(err, &exit) {
				return exit.ExitCode()
			}

			return 0
		}))
	}
}

func command(t *testing.T, program string, argv ...string) *exec.Cmd {
	t.Helper()

	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}

	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)

	cmd.Env = append(os.Environ(), programEnv+"="+program, "OVN_EBPF_TETHER=", "VM_KERNEL=")
	cmd.WaitDelay = time.Minute

	return cmd
}

func self(t *testing.T) string {
	t.Helper()

	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	return path
}

// TestDaemons is a test with daemons, which TestDaemonsEnd kills.
func TestDaemons(t *testing.T) {
	if os.Getenv(programEnv) == "" {
		t.Skip("TestDaemonsEnd runs this")
	}

	kubetest.Start(t)
	testnode.StartSwitch(t, true)
	// Only its namespace connects it to the test.
	daemon := exec.Command("setsid", "sh", "-c", "sleep 1h & wait")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}

	fmt.Println("daemons run")
	<-t.Context().Done()
}

var daemons = []string{"etcd", "kube-apiserver", "ovs-vswitchd", "ovsdb-server", "sleep"}

func TestDaemonsEnd(t *testing.T) {
	kubetest.Binary(t) // without a network it could not be built

	if err := platform.Default(t.Output()); err != nil {
		t.Fatal(err)
	}

	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name   string
		signal syscall.Signal
		parent string // a shell by this name starts the test, and gets the signal
	}{
		{"killed", unix.SIGKILL, ""},
		{"terminated", unix.SIGTERM, ""},
		{"interrupted", unix.SIGINT, ""},
		{"make killed", unix.SIGKILL, "make"},
		{"go killed", unix.SIGKILL, "go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := []string{self(t), "-test.run=^TestDaemons$"}
			if c.parent != "" {
				link := filepath.Join(t.TempDir(), c.parent)
				if err := os.Symlink(shell, link); err != nil {
					t.Fatal(err)
				}

				argv = append([]string{link, "-c", `sh -c '"$0" "$1"; true' "$0" "$1"; true`}, argv...)
			}

			cmd := command(t, "tests", argv...)
			temp := t.TempDir()
			cmd.Env = append(cmd.Env, "TMPDIR="+temp)

			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}

			errs, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}

			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			awaitLine(t, out, "daemons run")

			running := below(t, cmd.Process.Pid)
			for !slices.Equal(running.daemons(), daemons) { // some are still shells
				time.Sleep(10 * time.Millisecond)

				running = below(t, cmd.Process.Pid)
			}

			errs.Close() // as when go ends

			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}

			for _, r := range running {
				if _, err := r.Wait(t.Context()); err != nil { // the test's time limit is the limit
					t.Fatalf("%s runs on: %v", r.name, err)
				}
			}

			_, _ = io.Copy(io.Discard, out)

			if err := cmd.Wait(); err == nil {
				t.Error("the killed test succeeded")
			}

			left, err := os.ReadDir(temp)
			if err != nil || len(left) > 0 && (c.signal != unix.SIGKILL || c.parent != "") {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func awaitLine(t *testing.T, r io.Reader, want string) {
	t.Helper()

	for lines := bufio.NewScanner(r); lines.Scan(); {
		t.Log(lines.Text())

		if lines.Text() == want {
			return
		}
	}

	t.Fatalf("it ended without %q", want)
}

type named struct {
	*process.Process
	name string
}

type family []named

// daemons returns the sorted names of daemons that run.
func (f family) daemons() (names []string) {
	for _, n := range f {
		if slices.Contains(daemons, n.name) {
			names = append(names, n.name)
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// below returns the processes that descend from this one, and those in their PID namespaces.
func below(t *testing.T, pid int) (found family) {
	t.Helper()

	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}

	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}

	ours := map[int]bool{pid: true}
	namespaces := map[string]bool{}

	for range 10 { // generations
		for _, dir := range dirs {
			id, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}

			namespace, _ := os.Readlink(dir + "/ns/pid") // fails after its end, like the next
			stat, _ := os.ReadFile(dir + "/stat")
			_, rest, _ := strings.Cut(string(stat), ") ")

			fields := strings.Fields(rest)
			if len(fields) < 2 {
				continue
			}

			parent, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}

			if ours[parent] || namespaces[namespace] {
				ours[id] = true
			}

			if ours[id] && namespace != own {
				namespaces[namespace] = true
			}
		}
	}

	for id := range ours {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", id)) // fails after its end, like the next
		if p, err := process.Find(id); err == nil && id != pid {
			found = append(found, named{p, strings.TrimSpace(string(comm))})
		}
	}

	return found
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, script, out string
		code              int
	}{
		{"output and status", "echo out; exit 7", "out\n", 7},
		{"input", "cat", "in", 0},
		{"status of a signal", "kill -KILL $$", "", 255}, // the shell's status becomes -1, and that 255
		{"its daemons do not delay its end", "sleep 1h & echo out", "out\n", 0},
		{"orphans are reaped", `sh -c 'sleep 0 & :'; while ps -eo stat= | grep -q Z; do :; done; echo reaped`, "reaped\n", 0},
		{"its own processes", "ps -eo pid= | head -n 1 | tr -d ' '", "1\n", 0},
		{"its own /run", "ls /run", "t\n", 0},
		{"its own temporary directory", `mktemp | grep -q ^/run/t/ && stat -c %a "$TMPDIR"`, "1777\n", 0},
		{"a tether inside belongs to it", `echo $$ >/run/pid; ` + programEnv + `='cat /run/pid | wc -l' ` + self(t), "1\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, c.script, self(t))
			cmd.Stdin = strings.NewReader("in")

			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); string(out) != c.out || code != c.code {
				t.Errorf("output %q, status %d (%v), want %q and %d", out, code, err, c.out, c.code)
			}
		})
	}
}

func TestNoTetherInVM(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		kernel string
		same   bool
	}{{"6.12", true}, {"", false}} {
		cmd := command(t, "readlink /proc/self/ns/pid", self(t))
		cmd.Env = append(cmd.Env, "VM_KERNEL="+c.kernel)

		out, err := cmd.Output()
		if same := strings.TrimSpace(string(out)) == own; err != nil || same != c.same {
			t.Errorf("kernel %q: PID namespace %s, %v, outside %s", c.kernel, out, err, own)
		}
	}
}

type failure string

func (*failure) Helper()             {}
func (f *failure) Skip(args ...any)  { *f = failure("skipped: " + fmt.Sprint(args...)) }
func (f *failure) Fatal(args ...any) { *f = failure(fmt.Sprint(args...)) }

func TestCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("daemons of other users are not tethered")
	}

	for _, c := range []struct{ role, vm, unit, want string }{
		{"", "", "", "does not call tether.Main"},
		{"inside", "", "", ""},
		{"isolated", "", "", ""},
		{"", "6.12", "", ""},
		{"inside", "", "yes", "skipped: it starts daemons"},
	} {
		t.Setenv("OVN_EBPF_TETHER", c.role)
		t.Setenv("VM_KERNEL", c.vm)
		t.Setenv("OVN_EBPF_UNIT", c.unit)

		var f failure
		tether.Check(&f)

		if !strings.Contains(string(f), c.want) || c.want == "" && f != "" {
			t.Errorf("%q, VM %q: failure %q, want %q in it", c.role, c.vm, f, c.want)
		}
	}
}

func TestScratchDirectoryIsRemoved(t *testing.T) {
	cmd := command(t, "touch $TMPDIR/file", self(t))
	temp := t.TempDir()

	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
