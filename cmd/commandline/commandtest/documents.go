// Package commandtest has the tests of a program's command tree: its help, and what documents tell
// the reader to type.
package commandtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

// A Program is the command tree of a program, and how documents call it.
type Program struct {
	Names   string                           // pattern of the names that documents call it by
	Root    func() *cobra.Command            // a tree of its own for each call
	Invoked func(argv []string) (_ []string) // arguments of what was typed; nil: what follows the name
}

var (
	inline  = regexp.MustCompile("`([^`]+)`")
	comment = regexp.MustCompile(`\s#\s.*$`)
)

// Documents checks that every command of p that a document in top or top/docs tells the reader to
// type exists, with every flag that it has there. It returns how many commands it found.
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

// commandLines returns the commands in a document's code, in blocks and within the text.
func commandLines(text string, program *regexp.Regexp) []string {
	var out []string
	add := func(line string) {
		line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
		for part := range strings.SplitSeq(line, " && ") {
			if program.MatchString(part) && !strings.Contains(part, "ovn-k8s-cni-overlay") && !strings.Contains(part, "COMMAND") {
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

// checkLine returns what is wrong with a line, "" if nothing is.
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
	if len(rest) > 0 && c.HasSubCommands() && !strings.HasPrefix(rest[0], "-") && !strings.ContainsAny(rest[0], "…|[<") {
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
			break // the flags that follow are another command's
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
