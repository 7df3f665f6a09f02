package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standinEnv makes the test binary print the events of a suite instead of running tests. Its value is
// a directory with plan.json, a standinSuite. The file ran lists the tests that ran, in order.
const standinEnv = "OVN_EBPF_RESULTS_STANDIN"

// standinSuite has the tests of a suite by name. A test also runs for its subtest, and fails with it.
type standinSuite map[string]standinTest

type standinTest struct {
	Fails  int    // number of runs that fail before one passes
	Output string // printed by failed runs
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(standinEnv); dir != "" {
		os.Exit(runStandin(dir, os.Args[1:]))
	}

	os.Exit(m.Run())
}

// runStandin prints the events of tests. Arguments select one test as gotestsum and test/run do:
// -test.run=PATTERN PACKAGE. Without arguments, all tests run.
func runStandin(dir string, args []string) (status int) {
	plan, err := os.ReadFile(filepath.Join(dir, "plan.json"))

	suite := standinSuite{}
	if err := errors.Join(err, json.Unmarshal(plan, &suite)); err != nil {
		panic(err)
	}

	ran, _ := os.ReadFile(filepath.Join(dir, "ran"))

	log, err := os.OpenFile(filepath.Join(dir, "ran"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer log.Close()

	print := func(action, name, output string) {
		line, _ := json.Marshal(event{Action: action, Package: "planted", Test: name, Output: output})
		fmt.Printf("%s\n", line)
	}
	print("start", "", "")

	var ended []func()

	names := slices.Sorted(maps.Keys(suite)) // a subtest follows its parent
	for _, name := range names {
		part := func(other string) bool { return strings.HasPrefix(other+"/", name+"/") }

		matches := func(other string) bool { return args[0] == "-test.run="+(&test{name: other}).pattern() }
		if len(args) > 0 && !slices.ContainsFunc(names, func(other string) bool { return part(other) && matches(other) }) {
			continue
		}

		fmt.Fprintln(log, name)
		print("run", name, "")

		action := "pass"
		if strings.Count("\n"+string(ran), "\n"+name+"\n") < suite[name].Fails {
			action, status = "fail", 1

			print("output", name, "planted_test.go:1: "+suite[name].Output+"\n")
		}

		ended = append(ended, func() { print(action, name, "") })
	}

	for _, end := range slices.Backward(ended) { // a parent ends after its subtests
		end()
	}

	print([]string{"pass", "fail"}[status], "", "")

	return status
}

// ranIn runs the suite by test/run on a platform. It returns the status, the output, and how often
// each test ran.
func ranIn(t *testing.T, platform string, suite standinSuite) (status int, out string, ran map[string]int) {
	t.Helper()
	dir := t.TempDir()

	plan, err := json.Marshal(suite)
	if err != nil {
		t.Fatal(err)
	}

	write(t, dir, "plan.json", string(plan))

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "test/run", filepath.Join(dir, "events"), "--", self)
	cmd.Dir = "../.."

	cmd.Env = append(os.Environ(), standinEnv+"="+dir, "OVN_EBPF_PLATFORM="+platform)
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)

	if cmd.ProcessState == nil {
		t.Fatal(err)
	}

	log, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		t.Fatal(err)
	}

	ran = map[string]int{}
	for name := range strings.Lines(string(log)) {
		ran[strings.TrimSuffix(name, "\n")]++
	}

	return cmd.ProcessState.ExitCode(), string(text), ran
}

func checkRan(t *testing.T, got, want map[string]int) {
	t.Helper()

	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s ran %d times, want %d", name, got[name], want[name])
		}
	}
}

// Three failed tests run once more. A test that would pass in its third run fails.
func TestRun_repeatsOnce(t *testing.T) {
	t.Parallel()
	status, out, ran := ranIn(t, "debian13", standinSuite{
		"TestPasses": {}, "TestOnce": {Fails: 1}, "TestOnce2": {Fails: 1}, "TestTwice": {Fails: 2},
	})
	checkRan(t, ran, map[string]int{"TestPasses": 1, "TestOnce": 2, "TestOnce2": 2, "TestTwice": 2})

	if status == 0 || strings.Count(out, "FLAKY ") != 2 {
		t.Errorf("status %d", status)
	}

	lineWith(t, out, "FAILED TestTwice in planted")
}

// If more than three tests failed, none is repeated.
func TestRun_repeatsAtMostThree(t *testing.T) {
	t.Parallel()

	suite, want := standinSuite{}, map[string]int{}

	for i := range mostRepeated + 1 {
		name := fmt.Sprint("TestOnce", i)
		suite[name], want[name] = standinTest{Fails: 1}, 1
	}

	status, _, ran := ranIn(t, "debian13", suite)
	checkRan(t, ran, want)

	if status == 0 {
		t.Error("the run passed")
	}
}

// On debian12, a test is repeated twice if ovs-vswitchd aborted by itself during it.
func TestRun_repeatsAbortedTests(t *testing.T) {
	t.Parallel()

	kept := t.TempDir()
	if err := os.Mkdir(filepath.Join(kept, "node1"), 0o700); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(kept, "node1"), "vswitchd.log", "../lib/conntrack.c:1063: assertion "+assertion+" failed in conn_update_state()\n")

	status, out, ran := ranIn(t, "debian12", standinSuite{
		"TestPasses":         {},
		"TestPrints":         {Fails: 1, Output: "assertion " + assertion + " failed"},
		"TestKeeps":          {Fails: 2, Output: "logs of the failed run: " + kept + " (<nil>)"},
		"TestKeeps/other":    {},
		"TestKeeps/sub_test": {Fails: 2, Output: "no answer"},
	})
	checkRan(t, ran, map[string]int{"TestPasses": 1, "TestPrints": 2, "TestKeeps/other": 1, "TestKeeps/sub_test": 3})

	if status != 0 {
		t.Errorf("status %d", status)
	}

	lineWith(t, out, "FLAKY TestPrints in planted")
	lineWith(t, out, "FLAKY TestKeeps/sub_test in planted")
}

// On debian12, no other test is repeated, and a test is not repeated a third time.
func TestRun_repeatsOnlyAbortedTests(t *testing.T) {
	t.Parallel()

	aborts := "assertion " + assertion + " failed"
	status, out, ran := ranIn(t, "debian12", standinSuite{
		"TestOnce": {Fails: 1, Output: "no answer; logs of the failed run: " + t.TempDir()}, "TestAborts": {Fails: 1, Output: aborts}, "TestAborts3": {Fails: 3, Output: aborts},
	})
	checkRan(t, ran, map[string]int{"TestOnce": 1, "TestAborts": 2, "TestAborts3": 3})

	if status == 0 || strings.Count(out, "FAILED ") != 2 {
		t.Errorf("status %d", status)
	}

	lineWith(t, out, "FLAKY TestAborts in planted")

	suite, want := standinSuite{}, map[string]int{}

	for i := range mostRepeated + 1 {
		name := fmt.Sprint("TestAborts", i)
		suite[name], want[name] = standinTest{Fails: 1, Output: aborts}, 1
	}

	status, _, ran = ranIn(t, "debian12", suite)
	checkRan(t, ran, want)

	if status == 0 {
		t.Error("the run with four failed tests passed")
	}
}
