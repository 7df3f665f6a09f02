// Package randomtest chooses the seeds of random tests. A run of `go test` uses the same seed each time, so
// that CI decides a commit alike on every machine. .ci/full searches with new seeds.
package randomtest

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Env is the variable with the seed of all random tests, a number. .ci/full sets it.
const Env = "OVN_EBPF_SEED"

// fixed is the seed without a variable.
const fixed = 1

// Seed returns the seed of a random test, and logs how to repeat the test with it. The seed is in the
// environment variable of the test, if it has one of its own, or in Env, or is always the same.
func Seed(t testing.TB, variable ...string) uint64 {
	t.Helper()

	seed, name := uint64(fixed), Env
	for _, v := range append(variable, Env) {
		text := os.Getenv(v)
		if text == "" {
			continue
		}

		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("parse seed: %s=%s is not a number from 0 to 2^64-1", v, text)
		}

		seed, name = n, v

		break
	}

	t.Logf("random test; repeat with: %s=%d go test %s -run '^%s$'", name, seed, directory(), strings.ReplaceAll(t.Name(), "/", "$/^"))

	return seed
}

// directory returns the directory of the running test's package, from the top of the module.
func directory() string {
	pkg, err := os.Getwd()
	if err != nil {
		return "."
	}

	for top := pkg; top != filepath.Dir(top); top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			rel, _ := filepath.Rel(top, pkg)
			return "./" + cmp.Or(rel, ".")
		}
	}

	return "."
}
