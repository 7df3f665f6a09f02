package source

import (
	"regexp"
	"strings"
	"testing"
)

// The table in CONTRIBUTING.md has the times of make test, and no other text has: they would differ.
func TestTimes_areInOnePlace(t *testing.T) {
	time := regexp.MustCompile(`(?i)\b(minutes?|seconds?|hours?|\d+:\d\d)\b`)
	found := 0

	for name, about := range map[string]string{"README.md": "make test ", "Makefile": "test: build ##"} {
		for line := range strings.Lines(read(t, name)) {
			if !strings.HasPrefix(line, about) {
				continue
			}

			found++

			if m := time.FindString(line); m != "" {
				t.Errorf("%s has a time, %q: %s", name, m, line)
			}
		}
	}

	if found != 2 {
		t.Errorf("%d lines about make test, want one in README.md and one in the Makefile", found)
	}
}
