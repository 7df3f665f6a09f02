package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// timersMain is a process with coarse timers that prints its identity.
func timersMain() error {
	CoarseTimers()
	fmt.Println(os.Getpid(), os.Args[0], strings.Join(os.Args[1:], ","))

	tasks, err := filepath.Glob("/proc/self/task/*")
	for _, task := range tasks {
		slack, err := os.ReadFile("/proc/" + filepath.Base(task) + "/timerslack_ns")
		if err != nil {
			return err
		}

		fmt.Print(string(slack))
	}

	return err
}

// Every thread of the process has the slack, including those of the runtime. The process keeps its
// ID and arguments.
func TestCoarseTimers(t *testing.T) {
	for _, before := range []string{"50000", "5000000"} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		// The shell's children inherit its slack; exec keeps the process.
		cmd := exec.Command("sh", "-c", `echo `+before+` >/proc/$$/timerslack_ns && exec "$0" one "two words"`, self)

		cmd.Env = append(os.Environ(), testDaemon+"=timers")

		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}

		want := strconv.Itoa(int(timerSlack))
		if before == "5000000" {
			want = before // it is coarse enough
		}

		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if who := fmt.Sprint(cmd.Process.Pid, " ", self, " one,two words"); lines[0] != who {
			t.Errorf("the process is %q, want %q", lines[0], who)
		}

		if len(lines) < 4 {
			t.Errorf("%d threads, want three at least: %q", len(lines)-1, lines)
		}

		for _, slack := range lines[1:] {
			if slack != want {
				t.Errorf("started with a slack of %s ns, a thread has %s, want %s", before, slack, want)
			}
		}
	}
}
