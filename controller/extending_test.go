package controller_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// TestExtending: the example of docs/extending.md compiles in this tree and passes its tests, and
// so do the tests that all kinds must pass. The tree itself is not touched: the go command takes
// the example's files as an overlay.
func TestExtending(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it compiles packages; .ci/full has it, part packages")
	}

	text, err := os.ReadFile("../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}

	blocks, err := document.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}

	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}

	dir, replaced := t.TempDir(), map[string]string{}

	for _, b := range blocks {
		if b.Heading == "A reason" {
			continue // TestReason_extending in package verdict
		}

		first := strings.Fields(b.Lines[0])
		mark, path := first[0], filepath.FromSlash(first[1])

		var content string

		switch mark {
		case "//":
			content = strings.Join(b.Lines[1:], "\n") + "\n"
		case "---":
			content, err = document.Patched(filepath.Join(root, path), b)
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("line %d: neither a file nor a difference", b.Line)
		}

		file := filepath.Join(dir, strings.ReplaceAll(path, string(filepath.Separator), "_"))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		replaced[filepath.Join(root, path)] = file
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}

	tests := []string{
		"TestEgressIP", "TestEgressIPIsWatched", "TestKinds", "TestRows",
		"TestNodeAffects", "TestPodAffects", "TestSlicesAffect", "TestFrontsAffect", "TestPoliciesAffect",
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-overlay", file,
		"-run", "^("+strings.Join(tests, "|")+")$", "./controller/plan", "./controller/reconcile")
	cmd.Dir = root

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}

	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" (") {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
}
