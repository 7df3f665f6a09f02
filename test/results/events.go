package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// event is a line of `go test -json` (see `go doc test2json`). The lines of a rerun follow those of
// the first run.
type event struct {
	Action     string
	Package    string
	ImportPath string // instead of Package in events of the build: "package [package.test]"
	Test       string // "" for the package itself
	Output     string
}

// suite has the tests of a file of events.
type suite struct {
	name  string // of the file, without .json
	tests []*test
	known map[string]*test
}

// test is a test, a subtest, or a package ("" as name) with all of its runs in order.
type test struct {
	pkg, name string
	runs      []run
	under     bool // the last run has not ended
}

type run struct {
	action string // pass, fail or skip; "" if the run has not ended
	output strings.Builder
}

// readSuite reads a file of events. A file whose last line is incomplete is valid: its writer may have
// been killed.
func readSuite(file string) (*suite, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer f.Close()

	s := &suite{name: strings.TrimSuffix(filepath.Base(file), ".json"), known: map[string]*test{}}

	lines := bufio.NewReader(f)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return s, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}

		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read events: %s:%d: %w", file, number, err)
		}

		s.add(e)
	}
}

func (s *suite) add(e event) {
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}

	key := e.Package + "\x00" + e.Test

	t := s.known[key]
	if t == nil {
		t = &test{pkg: e.Package, name: e.Test}
		s.known[key], s.tests = t, append(s.tests, t)
	}

	switch e.Action {
	case "run", "start":
		t.begin()
	case "output", "build-output":
		t.begin() // a build has no start
		t.last().output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.begin()
		t.last().action, t.under = e.Action, false
	}
}

// begin adds a run if the last one has ended.
func (t *test) begin() {
	if !t.under {
		t.runs, t.under = append(t.runs, run{}), true
	}
}

func (t *test) last() *run { return &t.runs[len(t.runs)-1] }

func (t *test) failed() bool { return len(t.runs) > 0 && t.last().action == "fail" }

// cut reports whether the last run of the test never ended, as after a panic of another test.
func (t *test) cut() bool { return t.name != "" && t.under }

func (t *test) flaky() bool {
	return len(t.runs) > 1 && !t.failed() && slices.ContainsFunc(t.runs, func(r run) bool { return r.action == "fail" })
}

// bad returns the tests for which is is true, without those that have a subtest for which it is true,
// and without packages that have such a test.
func (s *suite) bad(is func(*test) bool) []*test {
	var out []*test

	for _, t := range s.tests {
		if !is(t) {
			continue
		}

		inner := func(o *test) bool {
			if o == t || o.pkg != t.pkg || !is(o) {
				return false
			}

			return t.name == "" || strings.HasPrefix(o.name, t.name+"/")
		}
		if !slices.ContainsFunc(s.tests, inner) {
			out = append(out, t)
		}
	}

	return out
}

// counts are the numbers of a suite's tests by the results of their last runs.
type counts struct{ tests, subtests, passed, skipped, failed, flaky int }

func (s *suite) counts() counts {
	var c counts

	for _, t := range s.tests {
		switch {
		case t.name == "" || len(t.runs) == 0:
			continue
		case strings.Contains(t.name, "/"):
			c.subtests++
		default:
			c.tests++
		}

		switch t.last().action {
		case "pass":
			c.passed++
		case "skip":
			c.skipped++
		}
	}

	c.failed = len(s.bad((*test).failed))
	c.flaky = len(s.bad((*test).flaky))

	return c
}

func (c counts) String() string {
	return fmt.Sprintf("%d tests, %d subtests, %d skipped, %d flaky, %d failed", c.tests, c.subtests, c.skipped, c.flaky, c.failed)
}
