package verdict_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// TestReason_extending does what docs/extending.md shows for a reason, in a copy of the tree: the
// edits, of which at most four are not of the test case, and the commands. The new reason must pass
// the tests of the model, of the programs and of the flows.
func TestReason_extending(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it compiles eBPF programs and packages; .ci/full has it, part packages")
	}

	root := copyTree(t)

	text, err := os.ReadFile(filepath.Join(root, "docs/extending.md"))
	if err != nil {
		t.Fatal(err)
	}

	blocks, err := document.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}

	var commands []document.Command

	edits := 0

	for _, b := range blocks {
		if b.Heading != "A reason" {
			continue
		}

		path, isEdit := strings.CutPrefix(b.Lines[0], "--- ")
		if !isEdit {
			commands = append(commands, b.Commands()...)
			continue
		}

		if !strings.HasPrefix(path, "verdict/corpus/") {
			edits++
		}

		changed, err := document.Patched(filepath.Join(root, path), b)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(root, path), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if edits == 0 || edits > 4 || len(commands) == 0 {
		t.Errorf("%d edits and %d commands, want 1 to 4 edits, and commands", edits, len(commands))
	}

	for _, c := range commands {
		runIn(t, root, "bash", "-c", c.Line)
	}

	for _, page := range []string{"docs/verdicts.md", "docs/metrics.md", "bpf/reason.h"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil || !strings.Contains(strings.ToLower(string(text)), "icmp_timestamp") {
			t.Errorf("%s does not have the new reason (%v)", page, err)
		}
	}

	runIn(t, root, "go", "test", "./verdict/...", "-short")
	runIn(t, root, "go", "test", "./bpf", "./agent/gateway/openflow", "-short", "-run", "^(TestGateway_(decidesCorpus|agreesWithModel|complexity)|TestCorpus|TestRandom)$")
}

// copyTree copies the files that git tracks, as they are in the work tree, into a directory.
func copyTree(t *testing.T) string {
	t.Helper()

	root := t.TempDir()
	runIn(t, "..", "bash", "-c", `git ls-files -z | xargs -0 cp --parents -t "$0" && git -C "$0" init -q`, root)

	return root
}

func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}
