package verdict

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const numbersPath = "testdata/reasons.txt"

// TestReason_numbersAreKept: the numbers are places in the pinned counters, which outlive an update,
// so a number never gets another reason. -update adds new reasons to the file, and nothing else.
func TestReason_numbersAreKept(t *testing.T) {
	text, err := os.ReadFile(numbersPath)
	if err != nil {
		t.Fatal(err)
	}

	var now []string

	for i := range ReasonCount {
		r := Reason(i)
		now = append(now, fmt.Sprintf("%d %s %s %s", i, r, r.Direction(), r.Verdict()))
	}

	kept := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range kept {
		if i >= len(now) || now[i] != line {
			t.Fatalf("%s has %q: a reason must keep its number, name and class, and must not be removed", numbersPath, line)
		}
	}

	switch {
	case len(now) == len(kept):
	case *update:
		if err := os.WriteFile(numbersPath, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s lacks %q: go test ./verdict -update adds it", numbersPath, now[len(kept):])
	}
}
