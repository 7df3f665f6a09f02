package commandtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Man writes the man pages of a tree to dir and checks that every command has one. Only tests link
// the generator.
func Man(t *testing.T, root *cobra.Command, dir string) {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "ovn-ebpf"}, dir); err != nil {
		t.Fatal(err)
	}
	Each(root, func(c *cobra.Command, _ []string) {
		if _, err := os.Stat(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".8")); err != nil && c.IsAvailableCommand() {
			t.Error(err)
		}
	})
}
