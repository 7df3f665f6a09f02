package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocuments: every command that a document tells the reader to type is there, with every
// flag that it has in the document.
func TestDocuments(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	typed := 0
	for _, path := range append(documents, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			typed++
			checkLine(t, filepath.Base(path), line)
		}
	}
	if typed < 30 {
		t.Errorf("%d commands in the documents: are they still found?", typed)
	}
}

var (
	inline  = regexp.MustCompile("`([^`]+)`")
	program = regexp.MustCompile(`^(\$ |nice -n \d+ )?(\S*/)?(ovnkube|ovn-k8s-[a-z-]+)( |$)`)
	comment = regexp.MustCompile(`\s#\s.*$`)
)

// commandLines are the commands of ours in a document's code, in blocks and within the text.
func commandLines(text string) []string {
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

func checkLine(t *testing.T, document, line string) {
	t.Helper()
	words := strings.Fields(program.ReplaceAllString(line, "$3 "))
	args := invoked(words)
	c := root()
	if len(args) > 1 && args[0] == "help" {
		if err := c.helpOn("", args[1:], io.Discard); !errors.Is(err, flag.ErrHelp) && args[1] != "COMMAND" {
			t.Errorf("%s: %q: %v", document, line, err)
		}
		return
	}
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		next := child(c, args[0])
		if next == nil {
			break
		}
		c, args = next, args[1:]
	}
	if len(args) > 0 && len(c.children) > 0 && !strings.HasPrefix(args[0], "-") && !strings.ContainsAny(args[0], "…|[<") {
		t.Errorf("%s: %q: %q is no command", document, line, args[0])
		return
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if c.setup != nil {
		c.setup(flags)
	}
	for _, a := range args {
		if a == "--" {
			break
		}
		name, found := strings.CutPrefix(strings.TrimPrefix(a, "["), "-")
		if !found && c.name == "exec" {
			break // the flags that follow are another command's
		}
		if !found {
			continue
		}
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		name = strings.Trim(name, "],;…")
		if name != "help" && name != "" && flags.Lookup(name) == nil {
			t.Errorf("%s: %q: no flag -%s", document, line, name)
		}
	}
}

func child(c *command, name string) *command {
	for _, k := range c.children {
		if k.name == name {
			return k
		}
	}
	return nil
}
