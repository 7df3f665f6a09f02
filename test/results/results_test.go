package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const planted = `package planted

import (
	"os"
	"testing"
)

func TestPasses(t *testing.T) { t.Run("part", func(t *testing.T) { t.Log("fine") }) }

func TestSkips(t *testing.T) { t.Skip("for a reason") }

func TestFails(t *testing.T) {
	t.Run("in a part", func(t *testing.T) {
		t.Log("a log line")
		t.Errorf("got %d, want %d", 1, 2)
	})
}

// TestFlaky fails unless an earlier run left a file.
func TestFlaky(t *testing.T) {
	if _, err := os.Stat("ran"); err == nil {
		return
	}
	if err := os.WriteFile("ran", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Error("the first run")
}
`

const panics = `package planted

import "testing"

func TestPanics(t *testing.T) { panic("at once") }
`

// runPlanted runs the planted tests as test/run does and returns the status and what the report prints.
func runPlanted(t *testing.T, source string) (status int, out, dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, dir, "go.mod", "module planted\n\ngo 1.26\n")
	write(t, dir, "planted_test.go", source)
	cmd := exec.CommandContext(t.Context(), "test/run", filepath.Join(dir, "events"), "--", "go", "-C", dir, "test", "-json", "-count=1")
	cmd.Dir = "../.."
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)

	if cmd.ProcessState == nil {
		t.Fatal(err)
	}

	return cmd.ProcessState.ExitCode(), string(text), dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()

	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func lineWith(t *testing.T, out, prefix string) string {
	t.Helper()

	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}

	t.Errorf("no line begins with %q", prefix)

	return ""
}

// A test that fails twice fails the run. A test that passes on its second run is named as flaky. The
// report names test, assertion and logs.
func TestFailedAndFlakyTestsAreReported(t *testing.T) {
	status, out, dir := runPlanted(t, planted)
	if status == 0 {
		t.Error("the run passed")
	}

	if line := lineWith(t, out, "FAILED "); !strings.Contains(line, "TestFails/in_a_part in planted") || !strings.Contains(line, "planted_test.go:15: got 1, want 2") {
		t.Errorf("the failure is %q", line)
	}

	flaky := lineWith(t, out, "FLAKY ")
	if !strings.Contains(flaky, "TestFlaky in planted") || !strings.Contains(flaky, "the first run") {
		t.Errorf("the flaky test is %q", flaky)
	}

	if want := "events                       4 tests, 2 subtests, 1 skipped, 1 flaky, 1 failed\n"; !strings.Contains(out, want) {
		t.Errorf("no line %q", want)
	}

	for _, n := range []string{"1", "2"} {
		text, err := os.ReadFile(filepath.Join(dir, "events", "TestFlaky-in-planted."+n+".log"))
		if first := strings.Contains(string(text), "the first run"); err != nil || first != (n == "1") {
			t.Errorf("log %s is %q, %v", n, text, err)
		}
	}

	if strings.Count(out, "FAILED ") != 1 {
		t.Error("the parent of a failed subtest is reported, too")
	}
}

// Tests that only flake do not fail the run.
func TestFlakyTestPasses(t *testing.T) {
	before, rest, _ := strings.Cut(planted, "func TestFails")
	_, after, _ := strings.Cut(rest, "// TestFlaky")

	status, out, _ := runPlanted(t, before+"// TestFlaky"+after)
	if status != 0 {
		t.Errorf("status %d", status)
	}

	lineWith(t, out, "FLAKY TestFlaky in planted")
}

// A panic is not rerun, as other tests did not run. The report has its message.
func TestPanicIsReported(t *testing.T) {
	status, out, _ := runPlanted(t, panics)
	if line := lineWith(t, out, "FAILED "); status == 0 || !strings.Contains(line, "panic: at once") {
		t.Errorf("status %d, the failure is %q", status, line)
	}
}

// A package that does not compile is reported with the compiler's message.
func TestBuildFailureIsReported(t *testing.T) {
	status, out, _ := runPlanted(t, "package planted\n\nvar x = y\n")
	if line := lineWith(t, out, "FAILED "); status == 0 || !strings.Contains(line, "undefined: y") {
		t.Errorf("status %d, the failure is %q", status, line)
	}
}

// A bad file of events is refused.
func TestBadEvents(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bad.json", "{\n")

	for _, args := range [][]string{nil, {filepath.Join(dir, "bad.json")}, {filepath.Join(dir, "absent.json")}} {
		if err := report(args, t.Output()); err == nil {
			t.Errorf("report %q succeeded", args)
		}
	}
}
