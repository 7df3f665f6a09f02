// Package document handles Markdown with generated parts between marks:
//
//	<!-- NAME -->
//	generated
//	<!-- /NAME -->
package document

import (
	"fmt"
	"os"
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
