package campaign

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A report names its commit. It adds -dirty if a tracked file has changed, except for files that
// campaigns replace.
func TestReport_namesItsCommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()

		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}

		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()

		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if got := commit(dir); got != "" {
		t.Errorf("outside of a checkout: %q", got)
	}

	git("init", "-q")

	result := "test/campaign/results/api-1.json"
	for _, name := range []string{result, "docs/reliability.md", "test/campaign/api.go"} {
		write(name, "1")
	}

	git("add", ".")
	git("commit", "-q", "-m", "one")
	head := git("rev-parse", "--short", "HEAD")

	write("test/campaign/results/api-2.json", "2")
	write("docs/reliability.md", "2")

	if err := os.Remove(filepath.Join(dir, result)); err != nil {
		t.Fatal(err)
	}

	if got := commit(filepath.Join(dir, "test/campaign")); got != head {
		t.Errorf("replaced results: commit %q, want %q", got, head)
	}

	write("test/campaign/api.go", "2")

	if got := commit(filepath.Join(dir, "test/campaign")); got != head+"-dirty" {
		t.Errorf("changed code: commit %q, want %q", got, head+"-dirty")
	}
}

// Steps after which a path is not answered in time are not in the quantiles, where they would count as
// whole at once.
func TestTable_namesLateSteps(t *testing.T) {
	lost := map[string]Count{"a path": {Sent: 10}}
	r := &Report{
		Campaign: "faults",
		Steps: []*Step{
			{Kind: "agent killed", Times: 3, HealMS: []int64{0, 400, 2000}, Lost: lost},
			{Kind: "none", Times: 1, HealMS: []int64{0}, Lost: lost},
		},
		Broken: []string{"fault 1, agent killed (node1): not answered 1m0s later: a path", "fault 1, agent killed (node1): pods made meanwhile: no"},
	}

	got := Table([]*Report{r})
	for _, row := range []string{"| agent killed | 3 | 2.0 s | 2.0 s, 1 not in time | 0 of 10 |\n", "| none | 1 | 0.0 s | 0.0 s | 0 of 10 |\n"} {
		if !strings.Contains(got, row) {
			t.Errorf("no row %q in:\n%s", row, got)
		}
	}
}
