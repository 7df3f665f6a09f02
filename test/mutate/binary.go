package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// binary is the test binary of a package with all its mutants.
type binary struct {
	dir     string // of the package: the tests run there
	work    string // for its files
	mutants []mutant
}

// build compiles the tests of a package with its mutants. A mutant that does not compile is left
// out: with it go the others on its line.
func build(dir, work string) (*binary, error) {
	pkg, err := load(dir)
	if err != nil {
		return nil, err
	}

	skip := map[string]bool{}
	for {
		source, err := instrument(pkg, skip)
		if err != nil {
			return nil, err
		}

		b := &binary{dir: dir, work: work, mutants: source.mutants}

		output, err := b.compile(source)
		if err == nil {
			return b, nil
		}

		before := len(skip)
		for _, m := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `).FindAllStringSubmatch(output, -1) {
			skip[filepath.Join(dir, filepath.Base(m[1]))+":"+m[2]] = true
		}

		if len(skip) == before {
			return nil, fmt.Errorf("build tests of %s: %w\n%s", dir, err, output)
		}
	}
}

// compile returns the compiler's output with the error.
func (b *binary) compile(source instrumented) (string, error) {
	replace := map[string]string{}

	source.files[filepath.Join(b.dir, "zz_mutant.go")] = helper(source.name, len(source.mutants))
	for name, text := range source.files {
		replace[name] = filepath.Join(b.work, filepath.Base(name))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			return "", err
		}
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}

	file := filepath.Join(b.work, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}

	cmd := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", file, "-o", b.path(), ".")
	cmd.Dir = b.dir
	output, err := cmd.CombinedOutput()

	return string(output), err
}

func (b *binary) path() string { return filepath.Join(b.work, "test") }

// tests returns the names of the tests that match run and do not match skip.
func (b *binary) tests(run, skip *regexp.Regexp) ([]string, error) {
	cmd := exec.Command(b.path(), "-test.list", ".")
	cmd.Dir = b.dir

	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}

	var out []string

	for _, name := range strings.Fields(string(output)) {
		if !strings.HasPrefix(name, "Benchmark") && run.MatchString(name) && (skip == nil || !skip.MatchString(name)) {
			out = append(out, name)
		}
	}

	return out, nil
}

// result of a test.
type result int

const (
	passed result = iota
	failed
	timedOut // an endless loop, for example
)

// memory bounds a test: a mutant may allocate without end.
const memory = 12 << 30

// run runs one test with a variable in its environment.
func (b *binary) run(test, variable string, limit time.Duration) (result, string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()

	cmd := exec.CommandContext(ctx, "prlimit", "--as="+strconv.Itoa(memory), b.path(), "-test.short", "-test.failfast", "-test.run", "^"+test+"$")

	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), variable)
	cmd.WaitDelay = time.Second

	output, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return passed, ""
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut, ""
	}

	return failed, string(output)
}

// reached runs a test without a mutant. It returns the IDs of the mutants that it reaches.
func (b *binary) reached(test string) ([]int, error) {
	record := filepath.Join(b.work, "record")
	if err := os.RemoveAll(record); err != nil {
		return nil, err
	}

	if how, output := b.run(test, "MUTANT_RECORD="+record, 10*time.Minute); how != passed {
		return nil, fmt.Errorf("run %s without a mutant: it fails\n%s", test, output)
	}

	text, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	var out []int

	for _, s := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", record, err)
		}

		out = append(out, id)
	}

	return out, nil
}
