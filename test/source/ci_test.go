package source

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeAll writes executable files below a directory, by path.
func writeAll(t *testing.T, dir string, files map[string]string) {
	t.Helper()

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// statusOf runs a command with additional variables. It returns the exit status and the output.
func statusOf(t *testing.T, env []string, argv ...string) (status int, output string) {
	t.Helper()

	run := exec.Command(argv[0], argv[1:]...)

	run.Env = append(os.Environ(), env...)

	out, err := run.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}

	return run.ProcessState.ExitCode(), string(out)
}

// standinPath returns the variables with which commands are the programs in dir/path first. A command
// that matches fail fails.
func standinPath(dir, fail string) []string {
	return []string{"PATH=" + filepath.Join(dir, "path") + ":" + os.Getenv("PATH"), "FAIL=" + fail}
}

// standinScript runs a copy of .ci/run or .ci/full whose commands are programs that write their names
// and arguments to a log, and their seeds if OVN_EBPF_SEED is in the environment that is given here. A
// command that matches the regular expression in fail fails.
func standinScript(t *testing.T, script, fail string, env []string, args ...string) (status int, log []string, output string) {
	t.Helper()
	dir := t.TempDir()

	seeds := ""
	if len(env) > 0 {
		seeds = " with seed $OVN_EBPF_SEED and $OVN_EBPF_SEEDS"
	}

	program := "#!/bin/bash\necho \"${0##*/} $*" + seeds + "\" >>" + dir + "/log\n[ -z \"$FAIL\" ] || ! [[ \"${0##*/} $*\" =~ $FAIL ]]\n"
	writeAll(t, dir, map[string]string{
		script: read(t, script), "test/parts": read(t, "test/parts"), "CONTRIBUTING.md": read(t, "CONTRIBUTING.md"),
		"path/make": program, "path/go": program, "test/packages": program, "log": "",
	})
	status, output = statusOf(t, append(standinPath(dir, fail), env...), append([]string{filepath.Join(dir, script)}, args...)...)

	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}

	return status, strings.Split(strings.TrimRight(string(text), "\n"), "\n"), output
}

func standinRun(t *testing.T, fail string, args ...string) (status int, log []string, output string) {
	t.Helper()
	return standinScript(t, ".ci/run", fail, nil, args...)
}

const sweeps = "go run ./test/sweep"

// .ci/run removes leftovers of earlier runs first, and then runs its parts in order. Without the
// sweep, nothing runs.
func TestRun_beginsWithTheSweep(t *testing.T) {
	t.Parallel()

	want := []string{sweeps}

	names, commands := runParts(t)
	for _, name := range names {
		want = append(want, commands[name])
	}

	status, log, out := standinRun(t, "")
	if d := cmp.Diff(want, log); d != "" || status != 0 {
		t.Errorf("status %d, commands (-want +got): %s\n%s", status, d, out)
	}

	if status, log, _ := standinRun(t, "^"+sweeps+"$"); status == 0 || len(log) != 1 || log[0] != sweeps {
		t.Errorf("the sweep fails: status %d, commands %q", status, log)
	}

	if _, log, _ := standinRun(t, "", "lint"); !slices.Equal(log, []string{sweeps, "make lint"}) {
		t.Errorf("part lint alone: commands %q", log)
	}
}

// A part that fails does not stop the others, except build. Then the exit status is 1, and the last 30
// lines name the part and its log.
func TestRun_goesOnAfterAFailure(t *testing.T) {
	t.Parallel()

	status, log, out := standinRun(t, "^make (lint|e2e)$")
	if names, _ := runParts(t); status != 1 || len(log) < 1+len(names) {
		t.Errorf("status %d, commands %q", status, log)
	}

	lines := strings.Split(strings.TrimSpace(out), "\n")

	last := strings.Join(lines[max(0, len(lines)-30):], "\n") + "\n"
	for _, text := range []string{"=== failed: lint e2e\n", "/build/ci/lint.log\n", "/build/ci/e2e.log\n"} {
		if !strings.Contains(last, text) {
			t.Errorf("the last lines do not have %q:\n%s", text, last)
		}
	}

	if status, log, _ := standinRun(t, "^make build$"); status != 1 || !slices.Equal(log, []string{sweeps, "make build"}) {
		t.Errorf("build fails: status %d, commands %q", status, log)
	}
}

// An unknown part is refused before anything runs.
func TestRun_refusesUnknownParts(t *testing.T) {
	t.Parallel()

	if status, log, out := standinRun(t, "", "lint", "no-such"); status != 2 || log[0] != "" || !strings.Contains(out, "no part no-such") {
		t.Errorf("status %d, commands %q: %s", status, log, out)
	}
}
