package source

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

// tracked returns the names of all files that git tracks, from the top directory.
func tracked(t *testing.T) []string {
	t.Helper()

	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = top

	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}

	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func read(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

var (
	fences   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	span     = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	onNode   = regexp.MustCompile(`^/(etc|run|usr|var|opt)/[\w./-]+$`)
)

// anchors returns the anchors that GitHub makes of a page's headings.
func anchors(text string) (out []string) {
	for _, h := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		out = append(out, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}

	return out
}

// brokenLinks returns the relative links of a page that lead nowhere.
func brokenLinks(name, text string, exists func(string) bool, page func(string) string) (out []string) {
	for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(fences.ReplaceAllString(text, ""), ""), -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}

		to := name
		if target != "" {
			to = path.Join(path.Dir(name), target)
		}

		if !exists(to) || anchor != "" && !slices.Contains(anchors(page(to)), anchor) {
			out = append(out, m[1])
		}
	}

	return out
}

// wrongPaths returns the code spans of a page that are paths of the repository, or on a node, and do
// not exist. directories are the repository's top level, and code is the text of all other files.
func wrongPaths(text string, directories []string, exists func(string) bool, code string) (out []string) {
	for _, m := range span.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		p := strings.TrimSuffix(strings.TrimSuffix(m[1], "/..."), "/")

		first, _, deep := strings.Cut(p, "/")
		switch {
		case p == "cluster/status": // a command of ovsdb-server
		case deep && slices.Contains(directories, first) && !strings.ContainsAny(p, " *…<$"):
			if slices.ContainsFunc(expand(p), func(f string) bool { file, _, _ := strings.Cut(f, ":"); return !exists(file) }) {
				out = append(out, m[1])
			}
		case onNode.MatchString(p):
			joined := strings.Contains(code, path.Dir(p)) && strings.Contains(code, `"`+path.Base(p)+`"`)
			if !joined && !strings.Contains(code, p) && !slices.Contains(others, p) {
				out = append(out, m[1])
			}
		}
	}

	return out
}

// others are files that no code of this project names: Debian's, OVN's, and of Open vSwitch's own daemons.
var others = []string{"/etc/default/openvswitch-switch", "/etc/default/ovn-central", "/etc/openvswitch/ovnnb-privkey.pem", "/var/run/openvswitch/NAME.pid"}

// expand returns the paths of a/{b,c}.go.
func expand(p string) []string {
	before, rest, found := strings.Cut(p, "{")

	list, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []string{p}
	}

	var out []string
	for name := range strings.SplitSeq(list, ",") {
		out = append(out, before+name+after)
	}

	return out
}

// examples returns the tests that a page has in its code.
func examples(text string) (out []string) {
	for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}

	return out
}

// TestDocumentsNameWhatExists checks that relative links lead to a page and a heading, that paths of
// the repository exist, that paths on a node are somewhere in the code, and that tests exist.
func TestDocumentsNameWhatExists(t *testing.T) {
	var (
		documents, directories, tests []string
		code                          strings.Builder
	)

	known := map[string]bool{}

	for _, name := range tracked(t) {
		if _, err := os.Stat(filepath.Join(top, name)); err != nil {
			continue // deleted, not yet committed
		}

		for d := name; d != "."; d = path.Dir(d) {
			known[d] = true
		}

		if first, _, deep := strings.Cut(name, "/"); deep && !slices.Contains(directories, first) {
			directories = append(directories, first)
		}

		switch {
		case path.Ext(name) == ".md" && !strings.Contains(name, "/testdata/"):
			documents = append(documents, name)
		case strings.HasSuffix(name, "_test.go"):
			tests = append(tests, examples(read(t, name))...)
			fallthrough
		default:
			code.WriteString(read(t, name))
		}
	}

	exists := func(p string) bool { return known[p] || strings.HasPrefix(p, "bin/") || strings.HasPrefix(p, "build/") }

	for _, name := range documents {
		if name == "CHANGELOG.md" { // it names what was
			continue
		}

		text := read(t, name)
		for _, l := range brokenLinks(name, text, exists, func(p string) string { return read(t, p) }) {
			t.Errorf("%s: the link %s leads nowhere", name, l)
		}

		for _, p := range wrongPaths(text, directories, exists, code.String()) {
			t.Errorf("%s: there is no %s", name, p)
		}

		for _, n := range testName.FindAllString(text, -1) {
			if !slices.ContainsFunc(append(tests, examples(text)...), func(f string) bool { return strings.HasPrefix(f, n) }) {
				t.Errorf("%s: there is no test %s", name, n)
			}
		}
	}
}

// TestDocumentsWithMistakes shows that TestDocumentsNameWhatExists finds mistakes.
func TestDocumentsWithMistakes(t *testing.T) {
	page := "# A page\n[one](other.md) [two](#a-page) [three](#no-page) [four](https://example.com/x) `[five](x)`\n" +
		"`agent/no.go` `agent/agent.go:7` `/etc/default/nothing` `/run/known` `agent/*.go`\n"
	exists := func(p string) bool { return p == "page.md" || p == "agent/agent.go" }

	got := append(brokenLinks("page.md", page, exists, func(string) string { return page }), wrongPaths(page, []string{"agent"}, exists, `"/run/known"`)...)
	if want := []string{"other.md", "#no-page", "agent/no.go", "/etc/default/nothing"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestArchitectureListsEveryPackage compares the tables of packages with the directories that have Go
// files. (TestDocumentsNameWhatExists finds rows of directories that do not exist.)
func TestArchitectureListsEveryPackage(t *testing.T) {
	text := read(t, "ARCHITECTURE.md")
	found := map[string]bool{}

	for _, name := range tracked(t) {
		if _, err := os.Stat(filepath.Join(top, name)); err != nil || path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") {
			continue
		}

		if found[path.Dir(name)] {
			continue
		}

		found[path.Dir(name)] = true
		if !strings.Contains(text, "\n| `"+path.Dir(name)+"` |") {
			t.Errorf("ARCHITECTURE.md has no row of the package %s", path.Dir(name))
		}
	}

	if len(found) < 100 {
		t.Errorf("%d packages, want at least 100", len(found))
	}
}

var question = regexp.MustCompile("(?m)^\\| ([^|]+\\?) \\| (`grep [^|]+`) \\| ([^|]+) \\|$")

// TestQuestions checks that at most two greps and three files answer each question of
// CONTRIBUTING.md, and that the greps find the files.
func TestQuestions(t *testing.T) {
	questions := question.FindAllStringSubmatch(strings.ReplaceAll(read(t, "CONTRIBUTING.md"), `\|`, "\x01"), -1)
	if len(questions) != 10 {
		t.Errorf("%d questions, want 10", len(questions))
	}

	for _, q := range questions {
		greps, files := span.FindAllStringSubmatch(q[2], -1), span.FindAllStringSubmatch(q[3], -1)
		if len(greps) > 2 || len(files) > 3 || len(files) == 0 {
			t.Errorf("%s: %d greps and %d files, want at most 2 and 3", q[1], len(greps), len(files))
		}

		var found bytes.Buffer

		for _, g := range greps {
			run := exec.Command("bash", "-c", strings.ReplaceAll(g[1], "\x01", "|"))

			run.Dir, run.Stdout = top, &found
			if err := run.Run(); err != nil {
				t.Errorf("%s: %s: %v", q[1], g[1], err)
			}
		}

		if n := bytes.Count(found.Bytes(), []byte("\n")); n > 25 {
			t.Errorf("%s: %d lines found, more than a reader looks at", q[1], n)
		}

		for _, f := range files {
			if !strings.Contains(found.String(), f[1]) {
				t.Errorf("%s: %s is not found", q[1], f[1])
			}
		}
	}
}

// joinedTables returns the lines at which a table touches a paragraph. GitHub would then show the
// paragraph as rows of the table, or the table as text.
func joinedTables(text string) (out []int) {
	row := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "|") }
	apart := func(line string) bool {
		line = strings.TrimSpace(line)
		return line == "" || strings.HasPrefix(line, "<!--") // a comment begins a block of its own
	}
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

	lines := strings.Split(fences.ReplaceAllStringFunc(text, blank), "\n")
	for i := 1; i < len(lines); i++ {
		before, here := lines[i-1], lines[i]
		if row(before) != row(here) && !apart(before) && !apart(here) {
			out = append(out, i+1)
		}
	}

	return out
}

// TestTablesStandAlone checks that an empty line separates each table of a document from the text
// around it.
func TestTablesStandAlone(t *testing.T) {
	n := 0

	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" || strings.Contains(name, "/testdata/") {
			continue
		}

		n++

		if lines := joinedTables(read(t, name)); lines != nil {
			t.Errorf("%s: a table touches a paragraph at lines %v", name, lines)
		}
	}

	if n < 30 {
		t.Errorf("%d documents, want at least 30", n)
	}
}

func TestJoinedTables(t *testing.T) {
	for text, want := range map[string][]int{
		"a\n\n| b |\n|---|\n| c |\n\nd":      nil,
		"a\n| b |\n|---|\n\nd":               {2},
		"| b |\n|---|\n| c |\n d":            {4},
		"```\na | b\n| c |\nd\n```\n\n| e |": nil,
		"<!-- made -->\n| b |\n<!-- end -->": nil,
	} {
		if got := joinedTables(text); !slices.Equal(got, want) {
			t.Errorf("%q: lines %v, want %v", text, got, want)
		}
	}
}
