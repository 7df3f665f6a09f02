package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// All threads of the controller have coarse timers.
func TestControllerTimers(t *testing.T) {
	slacks := func(pid string) string {
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/*")
		seen := map[string]bool{}

		for _, task := range tasks {
			slack, _ := os.ReadFile("/proc/" + filepath.Base(task) + "/timerslack_ns") // "": the thread has ended
			seen[strings.TrimSpace(string(slack))] = true
		}

		delete(seen, "")

		out := ""
		for s := range seen {
			out += s + " "
		}

		return out
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	nowhere := filepath.Join(t.TempDir(), "sock") // makes it wait for the database and the API server
	cmd := exec.Command(self, "controller", "--nb-address=unix:"+nowhere, "--k8s-apiserver=http://127.0.0.1:1")

	cmd.Env = append(os.Environ(), asProgram+"=1")

	var out strings.Builder

	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	const want = "1000000 "

	got := ""
	for end := time.Now().Add(20 * time.Second); got != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got = slacks(strconv.Itoa(cmd.Process.Pid))
	}

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error("the controller has ended")
	}

	err = cmd.Wait()
	if got != want {
		t.Errorf("its threads' timers have a slack of %sns, want %s: %v\n%s", got, want, err, out.String())
	}
}
