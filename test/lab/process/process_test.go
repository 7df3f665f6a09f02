package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

func start(t *testing.T, argv ...string) (*process.Process, string) {
	t.Helper()
	record := filepath.Join(t.TempDir(), "p.pid")

	p, err := process.Start(process.Spec{Argv: argv, Record: record, Log: filepath.Join(filepath.Dir(record), "log")})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Stop(0); err != nil {
			t.Error(err)
		}
	})

	return p, record
}

func TestStopByRecord(t *testing.T) {
	for _, c := range []struct {
		name  string
		argv  []string
		grace time.Duration
	}{
		{"at once", []string{"sleep", "1000"}, 0},
		{"politely", []string{"sleep", "1000"}, time.Minute},
		{"deaf", []string{"sh", "-c", "trap '' TERM; while :; do sleep 1000 & wait; done"}, 10 * time.Millisecond},
		{"with a child", []string{"sh", "-c", "sleep 1000 & wait"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, record := start(t, c.argv...)

			again, err := process.Load(record)
			if err != nil {
				t.Fatal(err)
			}

			if !again.Alive() {
				t.Fatal("recorded process is not alive")
			}

			if err := again.Stop(c.grace); err != nil {
				t.Fatal(err)
			}

			if p.Alive() || again.Alive() {
				t.Error("alive after Stop")
			}

			if err := again.Stop(c.grace); err != nil {
				t.Errorf("second Stop: %v", err)
			}
		})
	}
}

const firstThreadEnds = "PROCESS_TEST_FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(firstThreadEnds) == "" {
		return
	}

	runtime.LockOSThread() // init runs on the first thread

	go func() { time.Sleep(time.Hour) }()

	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // ends this thread only
}

// Remaining threads keep resources of the process, such as a daemon's pid file.
func TestFirstThreadEnded(t *testing.T) {
	t.Setenv(firstThreadEnds, "1")

	p, _ := start(t, "/proc/self/exe")
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			t.Fatal(err)
		}

		if strings.Contains(string(b), ") Z ") {
			break
		}

		time.Sleep(time.Millisecond)
	}

	if !p.Alive() {
		t.Error("not alive although it has running threads")
	}

	if err := p.Stop(0); err != nil {
		t.Fatal(err)
	}

	if p.Alive() {
		t.Error("alive after Stop")
	}
}

// A reused process ID must not be signalled.
func TestReusedPIDIsNotSignalled(t *testing.T) {
	p, record := start(t, "sleep", "1000")
	other := *p

	other.Start--
	if other.Alive() {
		t.Error("a process with another start time is alive")
	}

	if err := other.Stop(0); err != nil {
		t.Error(err)
	}

	if err := other.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}

	if !p.Alive() {
		t.Error("killed by a record of another process")
	}

	if err := os.WriteFile(record, []byte("nonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	if _, err := process.Load(record); err == nil {
		t.Error("Load of nonsense succeeds")
	}
}

func TestAwaitTellsWhyItEnded(t *testing.T) {
	p, _ := start(t, "sh", "-c", "echo the reason >&2; exit 3")

	err := p.Await(t.Context(), "it", func() error { return os.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("Await: %v, want the end of the log in it", err)
	}
}
