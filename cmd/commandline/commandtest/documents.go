// Package commandtest tests the command tree of a program: its help, and the commands in its
// documents.
package commandtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

// A Program is the command tree of a program, and its names in documents.
type Program struct {
	Names   string                           // pattern of the names that documents call it by
	Root    func() *cobra.Command            // a new tree for each call
	Invoked func(argv []string) (_ []string) // maps a typed command line to arguments; nil: all words after the name
}

var (
	inline  = regexp.MustCompile("`([^`]+)`")
	comment = regexp.MustCompile(`\s#\s.*$`)
)

// Documents checks every command of p in the documents of top and top/docs: the command and its
// flags must exist. It returns the number of commands found.
func Documents(t *testing.T, top string, p Program) (typed int) {
	t.Helper()

	documents, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}

	program := regexp.MustCompile(`^(\$ |nice -n \d+ )?(\S*/)?(` + p.Names + `)( |$)`)

	for _, path := range append(documents, filepath.Join(top, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		for _, line := range commandLines(string(text), program) {
			typed++
			words := strings.Fields(program.ReplaceAllString(line, "$3 "))
			args := words[1:]

			if p.Invoked != nil {
				args = p.Invoked(words)
			}

			if mistake := checkLine(p.Root(), args); mistake != "" {
				t.Errorf("%s: %q: %s", filepath.Base(path), line, mistake)
			}
		}
	}

	return typed
}

// commandLines returns the commands in a document's code blocks and code spans. It omits the CNI
// plugin, which has no command tree, and lines with the placeholder COMMAND.
func commandLines(text string, program *regexp.Regexp) []string {
	var out []string

	add := func(line string) {
		line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
		for part := range strings.SplitSeq(line, " && ") {
			if program.MatchString(part) && !strings.Contains(part, "ovn-k8s-cni-overlay") &&
				!strings.Contains(part, "COMMAND") {
				out = append(out, part)
			}
		}
	}

	for i, part := range strings.Split("\n"+strings.ReplaceAll(text, "\\\n", " "), "\n```") {
		if i%2 == 1 {
			for line := range strings.SplitSeq(part, "\n") {
				add(line)
			}

			continue
		}

		for _, m := range inline.FindAllStringSubmatch(part, -1) {
			add(m[1])
		}
	}

	return out
}

// checkLine returns the mistake in the arguments of a command, or "". Arguments may be
// placeholders, as in [FLAG], <NAME>, A|B and "…".
func checkLine(root *cobra.Command, args []string) string {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion")

	c, rest := commandline.Find(root, commandline.Normalize(root, args))
	if c.Name() == "help" && c.Parent() == root {
		c, rest = commandline.Find(root, rest)
		if len(rest) > 0 && c.HasSubCommands() {
			return "no command " + rest[0]
		}

		return ""
	}

	if len(rest) > 0 && c.HasSubCommands() && !strings.HasPrefix(rest[0], "-") &&
		!strings.ContainsAny(rest[0], "…|[<") {
		return "no command " + rest[0]
	}

	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()

	for _, a := range rest {
		if a == "--" {
			break
		}

		name, found := strings.CutPrefix(strings.TrimPrefix(a, "["), "-")
		if !found && c.Name() == "exec" {
			break // the remaining flags belong to another command
		}

		if !found {
			continue
		}

		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if name = strings.Trim(name, "],;…"); name != "" && c.Flags().Lookup(name) == nil {
			return "no flag -" + name
		}
	}

	return ""
}

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
		page := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".8")
		if _, err := os.Stat(page); err != nil && c.IsAvailableCommand() {
			t.Error(err)
		}
	})
}
