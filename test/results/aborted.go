package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// assertion is in the log of an ovs-vswitchd before 3.3 that has aborted by itself. Its own connection
// tracker, of the userspace datapath, does so now and then, whatever the gateway is
// (docs/services.md). Its monitor restarts it, but connections end, which tests notice.
const assertion = "conn->conn_type == CT_CONN_TYPE_DEFAULT"

// mostRepeated is the number of failed tests above which none is repeated. test/run has the same limit
// for gotestsum.
const mostRepeated = 3

// keptLogs matches where a test of the lab has kept the logs of a failed run (keepLogs in test/e2e).
var keptLogs = regexp.MustCompile(`logs of the failed run: (\S+)`)

// aborted returns the failed tests during whose last run ovs-vswitchd aborted by itself. It returns
// none if more than mostRepeated tests failed, or if something failed that a repeated test cannot
// correct: a package outside its tests, or tests that never ended.
func (s *suite) aborted() (out []*test) {
	failed := s.bad((*test).failed)

	outside := func(t *test) bool { return t.name == "" }
	if len(failed) > mostRepeated || slices.ContainsFunc(failed, outside) || slices.ContainsFunc(s.tests, (*test).cut) {
		return nil
	}

	for _, t := range failed {
		if s.vswitchdAborted(t) {
			out = append(out, t)
		}
	}

	return out
}

// vswitchdAborted reports whether the assertion is in the output of the test's last run, or in the
// logs that this run has kept. The subtests of a test share its lab, so they share its logs.
func (s *suite) vswitchdAborted(t *test) bool {
	root, _, _ := strings.Cut(t.name, "/")

	output := t.last().output.String()
	if r := s.known[t.pkg+"\x00"+root]; r != nil && r != t {
		output += r.last().output.String()
	}

	if strings.Contains(output, assertion) {
		return true
	}

	for _, m := range keptLogs.FindAllStringSubmatch(output, -1) {
		if hasAssertion(m[1]) {
			return true
		}
	}

	return false
}

// hasAssertion reports whether a file below the directory has the assertion. Files that cannot be read
// have none.
func hasAssertion(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}

		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), assertion) {
			found = true
			return fs.SkipAll
		}

		return nil
	})

	return found
}

// pattern returns the value of -test.run that matches the test alone.
func (t *test) pattern() string {
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}

	return strings.Join(parts, "/")
}

// passed returns an error unless the last run of each test and each package passed or was skipped.
func (s *suite) passed() error {
	if len(s.tests) == 0 || slices.ContainsFunc(s.tests, (*test).failed) || slices.ContainsFunc(s.tests, (*test).cut) {
		return errors.New("report results: not all tests passed")
	}

	return nil
}
