package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestBases: each base of the image that comes from a registry is pinned by its digest.
func TestBases(t *testing.T) {
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}

	pinned, args := regexp.MustCompile(`^[a-z0-9./:-]+@sha256:[0-9a-f]{64}$`), map[string]bool{}
	stages := map[string]bool{"scratch": true}

	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "ARG" && strings.Contains(f[1], "BASE="):
			name, value, _ := strings.Cut(f[1], "=")
			if args["${"+name+"}"] = pinned.MatchString(value); !args["${"+name+"}"] {
				t.Errorf("%s is %s, which is not pinned", name, value)
			}
		case len(f) > 1 && f[0] == "FROM":
			if !args[f[1]] && !stages[f[1]] && !pinned.MatchString(f[1]) {
				t.Errorf("FROM %s is not pinned", f[1])
			}

			if len(f) == 4 {
				stages[f[3]] = true
			}
		}
	}

	if len(args) != 2 {
		t.Errorf("bases %v, want two", args)
	}
}
