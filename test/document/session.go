package document

import (
	"fmt"
	"regexp"
	"strings"
)

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
