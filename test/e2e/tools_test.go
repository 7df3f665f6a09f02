package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// testTools runs each tool of README and docs on each node by `ovnlab exec`, without a path, as a
// reader does.
func testTools(t *testing.T, c *Cluster) {
	lines := toolLines(t)
	if len(lines) < 8 {
		t.Fatalf("the documents have the tools %q; are they still found?", lines)
	}

	ping, err := c.Command(t.Context(), "ext", "ping", "-n", "-q", "-i", "0.2", c.gateway(1)(false).String(), "-c", "3000")
	if err != nil {
		t.Fatal(err)
	}

	if err := ping.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = ping.Process.Kill() // an error: it has ended
		_ = ping.Wait()
	}()

	for _, n := range c.Nodes() {
		pinged := n.Index == 1

		for _, line := range lines {
			live := strings.HasPrefix(line, "ovnkube gateway monitor") || strings.HasPrefix(line, "ovnkube gateway top")
			if live && (c.flows || !pinged) || strings.Contains(line, "drain-gateway") && (c.local || !pinged) {
				continue // programs alone are monitored, and a node is drained once, where gateways serve others
			}

			t.Run(n.Name+"/"+line, func(t *testing.T) {
				args := append([]string{"exec", "--dir", c.dir, n.Name}, strings.Fields(line)...)

				out, err := exec.CommandContext(t.Context(), c.Binary("ovnlab"), args...).CombinedOutput()
				if err != nil || len(out) == 0 {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// elsewhere are parts of commands that other tests type: with files that TestDocuments has, or to
// remove a node.
var elsewhere = []string{"config check", "-pcap", "node forget"}

// toolLines returns the commands that inspect or prepare a node, without duplicates. Endless tools
// get the flag that ends them, and the drained node is one of this lab.
func toolLines(t *testing.T) (lines []string) {
	t.Helper()

	comment := regexp.MustCompile(`\s+#.*`)
	seen := map[string]bool{}

	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range append([]string{"../../README.md"}, docs...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		blocks, err := document.Blocks(string(text))
		if err != nil {
			t.Fatal(err)
		}

		for _, b := range blocks {
			for _, command := range b.Commands() {
				line := strings.ReplaceAll(comment.ReplaceAllString(command.Line, ""), "node3", "node2")

				words := strings.Fields(line)
				if len(words) < 2 || words[0] != "ovnkube" || !slices.Contains([]string{"gateway", "status", "node", "config"}, words[1]) {
					continue
				}

				if slices.ContainsFunc(elsewhere, func(part string) bool { return strings.Contains(line, part) }) {
					continue
				}

				if words[1] == "gateway" && words[2] == "monitor" && !strings.Contains(line, "-count") {
					line += " -count 2"
				}

				if !seen[line] {
					lines, seen[line] = append(lines, line), true
				}
			}
		}
	}

	return lines
}
