package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const usage = `usage: go run ./test/results FILE...
       go run ./test/results -aborted FILE
       go run ./test/results -passed FILE

Prints the numbers of tests in files of events (go test -json, gotestsum --jsonfile), and each flaky
and each failed test with its assertion and its logs. The logs of FILE.json are written into the
directory FILE. The exit status is 0 if the files can be read and have a test.

  -aborted   print the failed tests during which ovs-vswitchd aborted by itself: package and pattern
             for -test.run. None are printed if more than three tests failed.
  -passed    print nothing; the exit status is 0 if the last run of each test passed
`

func main() {
	err := report(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("results", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.Usage = func() { fmt.Fprint(stdout, usage) }
	listAborted := flags.Bool("aborted", false, "")

	mustPass := flags.Bool("passed", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() == 0 {
		return errors.New("report results: no file of events; see --help")
	}

	if *listAborted || *mustPass {
		if flags.NArg() != 1 || *listAborted == *mustPass {
			return errors.New("report results: -aborted and -passed take one file; see --help")
		}

		s, err := readSuite(flags.Arg(0))
		if err != nil {
			return err
		}

		if *mustPass {
			return s.passed()
		}

		for _, t := range s.aborted() {
			fmt.Fprintln(stdout, t.pkg, t.pattern())
		}

		return nil
	}

	var (
		total counts
		notes []string
	)

	for _, file := range flags.Args() {
		s, err := readSuite(file)
		if err != nil {
			return err
		}

		c := s.counts()
		fmt.Fprintf(stdout, "%-28s %v\n", s.name, c)
		total.passed, total.skipped, total.failed = total.passed+c.passed, total.skipped+c.skipped, total.failed+c.failed

		texts, err := s.notes(strings.TrimSuffix(file, ".json"))
		if err != nil {
			return err
		}

		notes = append(notes, texts...)
	}

	for _, n := range notes {
		fmt.Fprintln(stdout, n)
	}
	// A form that CI services read, whatever the language.
	fmt.Fprintf(stdout, "tests: %d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)

	if total.passed+total.failed == 0 {
		return errors.New("report results: the files have no test")
	}

	return nil
}

// notes returns a line for each flaky and each failed test, and writes the logs of their runs into
// dir.
func (s *suite) notes(dir string) ([]string, error) {
	var out []string

	for _, kind := range []struct {
		word string
		is   func(*test) bool
	}{{"FLAKY", (*test).flaky}, {"FAILED", (*test).failed}, {"CUT OFF", (*test).cut}} {
		for _, t := range s.bad(kind.is) {
			logs, err := s.writeLogs(dir, t)
			if err != nil {
				return nil, err
			}

			out = append(out, fmt.Sprintf("%s %s (%s): %s; logs: %s", kind.word, t.title(), s.name, s.assertion(t), strings.Join(logs, " ")))
		}
	}

	return out, nil
}

// title is the test's name, or the package's path, which may have failed outside its tests.
func (t *test) title() string {
	pkg := strings.TrimPrefix(t.pkg, "github.com/ovn-ebpf/ovn-ebpf/")
	if t.name == "" {
		return "package " + pkg
	}

	return t.name + " in " + pkg
}

// writeLogs writes the output of each run of the test and its subtests, and returns the files' names.
func (s *suite) writeLogs(dir string, t *test) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write logs: %w", err)
	}

	base := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/ ,:*?|&;<>()'\"", r) {
			return '-'
		}

		return r
	}, strings.TrimPrefix(t.title(), "package "))

	var files []string

	for i := range t.runs {
		file := filepath.Join(dir, fmt.Sprintf("%s.%d.log", base, i+1))
		if err := os.WriteFile(file, []byte(s.output(t, i)), 0o644); err != nil {
			return nil, fmt.Errorf("write logs: %w", err)
		}

		files = append(files, file)
	}

	return files, nil
}

// output returns what the test and its subtests printed in a run.
func (s *suite) output(t *test, n int) string {
	text := t.runs[n].output.String()
	for _, o := range s.tests {
		if o.pkg == t.pkg && t.name != "" && strings.HasPrefix(o.name, t.name+"/") && n < len(o.runs) {
			text += o.runs[n].output.String()
		}
	}

	return text
}

var (
	assertionLine = regexp.MustCompile(`(?m)^\s*(\S+\.go:\d+: .*|panic: .*|fatal error: .*|\S+\.go:\d+:\d+: .*)$`) // the last one is the compiler's
	noise         = regexp.MustCompile(`^\s*(=== |--- |FAIL|exit status|ok\s|$)`)
)

// assertion returns the last line of the failed run that names a source line or a panic, because
// earlier ones may be logs, or else its last line.
func (s *suite) assertion(t *test) string {
	text := ""

	for i := range t.runs {
		if a := t.runs[i].action; a == "fail" || a == "" {
			text = s.output(t, i)
		}
	}

	line := ""
	if found := assertionLine.FindAllStringSubmatch(text, -1); len(found) > 0 {
		line = found[len(found)-1][1]
		for _, f := range found { // a panic is followed by lines of the stack
			if strings.HasPrefix(f[1], "panic: ") || strings.HasPrefix(f[1], "fatal error: ") {
				line = f[1]
				break
			}
		}
	} else {
		for l := range strings.Lines(text) {
			if !noise.MatchString(l) {
				line = strings.TrimSpace(l)
			}
		}
	}

	const most = 240
	if len(line) > most {
		line = line[:most] + "…"
	}

	return line
}
