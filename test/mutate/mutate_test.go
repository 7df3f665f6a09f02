package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestMutate tries every mutant of the package in testdata/sample.txtar. Its tests notice all but
// those that the report there lists.
func TestMutate(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/sample.txtar")
	if err != nil {
		t.Fatal(err)
	}

	dir, want := t.TempDir(), ""

	for _, f := range archive.Files {
		if f.Name == "report" {
			want = string(f.Data)
			continue
		}

		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")

	var out strings.Builder

	survivors, err := mutate([]string{"-accepted", "accepted", "."}, &out)
	if err != nil {
		t.Fatal(err)
	}

	if got := out.String(); got != want || survivors != strings.Count(want, "mutate: survives: ") {
		t.Errorf("%d survivors, report:\n%swant:\n%s", survivors, got, want)
	}
}

// TestSample checks that a seed determines the choice, and that the choice has the wanted size.
func TestSample(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/sample.txtar")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for _, f := range archive.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	t.Chdir(dir)

	pkg, err := load(".")
	if err != nil {
		t.Fatal(err)
	}

	source, err := instrument(pkg, nil)
	if err != nil {
		t.Fatal(err)
	}

	o := options{files: regexp.MustCompile(""), sample: 7, seed: 1}

	one, again := choose(source.mutants, o), choose(source.mutants, o)
	if o.seed = 2; len(one) != 7 || fmt.Sprint(one) != fmt.Sprint(again) || fmt.Sprint(one) == fmt.Sprint(choose(source.mutants, o)) {
		t.Errorf("choices %v, %v of the same seed", one, again)
	}
}
