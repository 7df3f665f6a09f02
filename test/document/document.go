// Package document handles Markdown with generated parts between marks:
//
//	<!-- NAME -->
//	generated
//	<!-- /NAME -->
package document

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Embed replaces the text between the marks of a name.
func Embed(document, name, text string) (string, error) {
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, begins := strings.Cut(document, begin)

	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", fmt.Errorf("embed table: no marks %s and %s", strings.TrimSpace(begin), end)
	}

	return before + begin + text + end + after, nil
}

// Check fails the test unless the file has these texts between the marks of their names. With
// update it writes them instead; command tells the user how.
func Check(t *testing.T, path string, texts map[string]string, update bool, command string) {
	t.Helper()

	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	want := string(is)
	for name, text := range texts {
		if want, err = Embed(want, name, text); err != nil {
			t.Fatal(err)
		}
	}

	switch {
	case update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(is):
		t.Errorf("%s is outdated, run: %s", path, command)
	}
}

// Block is a fenced block of code.
type Block struct {
	Line    int      // of the opening fence, from 1
	Heading string   // the last one before, of any level, without the marks
	Lines   []string // unmodified
}

// Blocks returns all fenced blocks of a document.
func Blocks(text string) ([]Block, error) {
	var out []Block

	inside := false

	heading, number := "", 0
	for line := range strings.Lines(text) {
		number++

		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			if inside = !inside; inside {
				out = append(out, Block{Line: number, Heading: heading})
			}
		case !inside && strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case inside:
			b := &out[len(out)-1]
			b.Lines = append(b.Lines, line)
		}
	}

	if inside {
		return nil, fmt.Errorf("line %d: a fence that is not closed", out[len(out)-1].Line)
	}

	return out, nil
}

// Command is a command in a document, with its output, if shown.
type Command struct {
	Line   string // one line, or with "> " several
	Output []string
	Shown  bool // Output is the complete output, as the block is a session
}

// Commands returns the commands of the block: every line except comments. In a block with lines
// that start with the prompt "$ ", only those are commands. Following lines with "> " continue the
// command, and the others are its output.
func (b Block) Commands() []Command {
	const prompt, more = "$ ", "> "

	joined := strings.Split(strings.ReplaceAll(strings.Join(b.Lines, "\n"), "\\\n", ""), "\n")

	session := false
	for _, line := range joined {
		session = session || strings.HasPrefix(line, prompt)
	}

	var out []Command

	for _, line := range joined {
		typed, asked := strings.CutPrefix(line, prompt)
		switch {
		case strings.TrimSpace(line) == "", !session && strings.HasPrefix(line, "#"):
		case session && !asked && len(out) > 0:
			last := &out[len(out)-1]
			if further, ok := strings.CutPrefix(line, more); ok && len(last.Output) == 0 {
				last.Line += "\n" + further
				continue
			}

			last.Output = append(last.Output, line)
		default:
			out = append(out, Command{Line: strings.TrimSpace(typed), Shown: session})
		}
	}

	return out
}

// Elision replaces omitted output in a document: text within a line, or any number of lines if it
// stands alone.
const Elision = "…"

// Compare returns an error unless the output matches the document. Runs of blanks are equal, as
// column widths depend on the content.
func Compare(shown []string, output string) error {
	var got []string

	for line := range strings.Lines(output) {
		if line = blanks(line); line != "" {
			got = append(got, line)
		}
	}

	at := 0

	for i := 0; i < len(shown); i++ {
		want := blanks(shown[i])
		if want != Elision {
			if at >= len(got) || !matches(want, got[at]) {
				return mismatch(want, got, at)
			}

			at++

			continue
		}

		rest := shown[i+1:]
		if len(rest) == 0 {
			return nil
		}
		// The first place from which the rest matches.
		var err error
		for ; at <= len(got); at++ {
			if err = Compare(rest, strings.Join(got[at:], "\n")); err == nil {
				return nil
			}
		}

		return fmt.Errorf("after %q: %w", Elision, err)
	}

	if at < len(got) {
		return fmt.Errorf("the document does not show %q", got[at])
	}

	return nil
}

func mismatch(want string, got []string, at int) error {
	if at >= len(got) {
		return fmt.Errorf("the output ends where the document shows %q", want)
	}

	return fmt.Errorf("the document shows %q, the output is %q", want, got[at])
}

// matches reports whether the line matches the pattern, in which … stands for any text.
func matches(pattern, line string) bool {
	parts := strings.Split(pattern, Elision)
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}

	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(line)
}

func blanks(s string) string { return strings.Join(strings.Fields(s), " ") }

// Patched returns the file with the changes of a block, which is a difference without line numbers:
// a line that names the file, and hunks that begin with @@. A hunk's old lines must be in the file
// exactly once.
func Patched(path string, b Block) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}

	out := string(text)

	for hunk := range strings.SplitSeq(strings.Join(b.Lines[1:], "\n")+"\n", "@@\n") {
		if hunk == "" {
			continue
		}

		var before, after strings.Builder

		for line := range strings.Lines(hunk) {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}

			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}

		if n := strings.Count(out, before.String()); n != 1 {
			return "", fmt.Errorf("%s has %d times\n%s", path, n, before.String())
		}

		out = strings.Replace(out, before.String(), after.String(), 1)
	}

	return out, nil
}
