package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullPart is a row of `.ci/full list`.
type fullPart struct{ Name, Covers, When string }

func fullParts(t *testing.T) (parts []fullPart) {
	t.Helper()

	out, err := exec.Command(filepath.Join(top, ".ci/full"), "list").Output()
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(out)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 {
			t.Fatalf("row %q has %d cells, want 3", line, len(cells))
		}

		parts = append(parts, fullPart{strings.TrimSpace(cells[0]), cells[1], cells[2]})
	}

	if len(parts) < 10 {
		t.Fatalf("%d parts", len(parts))
	}

	return parts
}

// runParts returns the commands of .ci/run's parts by name, and the names in order.
func runParts(t *testing.T) (names []string, commands map[string]string) {
	t.Helper()

	commands = map[string]string{}

	for _, m := range regexp.MustCompile(`(?m)^part ([a-z0-9-]+) ([^#\n]+)`).FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		names = append(names, m[1])
		commands[m[1]] = strings.TrimSpace(m[2])
	}

	return names, commands
}

// table returns the cells of a Markdown table in CONTRIBUTING.md, without code marks, by its head.
func table(t *testing.T, head string) (rows [][]string) {
	t.Helper()

	_, rest, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n"+head+"\n")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no table %q", head)
	}

	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}

		if strings.HasPrefix(line, "|--") {
			continue
		}

		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}

		rows = append(rows, cells)
	}

	return rows
}

// CONTRIBUTING.md documents the parts that .ci/full lists.
func TestFullTable(t *testing.T) {
	var got []fullPart

	for _, row := range table(t, "| part | covers | run it when |") {
		if len(row) != 3 {
			t.Fatalf("row %q has %d cells, want 3", row, len(row))
		}

		unmarked := func(cell string) string { return strings.ReplaceAll(cell, "`", "") }
		got = append(got, fullPart{row[0], unmarked(row[1]), unmarked(row[2])})
	}

	if d := cmp.Diff(fullParts(t), got); d != "" {
		t.Errorf("rows of .ci/full list (-) and of CONTRIBUTING.md (+): %s", d)
	}
}

// standin writes a copy of .ci/full whose commands are programs that write their names and arguments
// to a log. A command that matches the regular expression in FAIL fails. full runs the copy.
func standin(t *testing.T) (full func(fail string, args ...string) (status int, log []string, output string)) {
	t.Helper()
	dir := t.TempDir()
	program := "#!/bin/bash\necho \"${0#" + dir + "/}${*:+ $*}\" >>" + dir + "/log\n[ -z \"$FAIL\" ] || ! [[ \"${0##*/} $*\" =~ $FAIL ]]\n"
	writeAll(t, dir, map[string]string{
		".ci/full": read(t, ".ci/full"), "path/make": program, "path/go": program,
		"test/packages": program, "test/image": program, "test/release": program, "test/run": program, "test/vm/suite": program,
		"test/parts": read(t, "test/parts"),
	})

	return func(fail string, args ...string) (int, []string, string) {
		t.Helper()

		if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}

		status, out := statusOf(t, standinPath(dir, fail), append([]string{filepath.Join(dir, ".ci/full")}, args...)...)

		log, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}

		return status, strings.Split(strings.ReplaceAll(strings.TrimSpace(string(log)), "path/", ""), "\n"), out
	}
}

// Each part of .ci/full list runs commands, and a run without arguments runs all parts in that order.
func TestFullRunsEachPart(t *testing.T) {
	full := standin(t)
	all := []string{"make build"}

	for _, p := range fullParts(t) {
		status, log, out := full("", p.Name)
		if status != 0 || len(log) < 2 || log[0] != "make build" {
			t.Errorf("%s: status %d, commands %q: %s", p.Name, status, log, out)
		}

		all = append(all, log[1:]...)
	}

	seeds := regexp.MustCompile(`-v -run \^TestCampaign`) // the seeds are random, but not in arguments

	status, log, out := full("")
	if d := cmp.Diff(all, log); status != 0 || d != "" || !slices.ContainsFunc(log, seeds.MatchString) {
		t.Errorf("status %d; commands of single parts (-) and of all (+): %s\n%s", status, d, out)
	}
}

// A part ends at its first failed command, except native, whose runs are independent. The other parts
// run, the summary has each part, and the exit status is 1.
func TestFullGoesOn(t *testing.T) {
	full := standin(t)

	status, log, out := full(`^run native-direct|^go test .*TestPlanted`, "race", "native", "api", "page")
	if status != 1 || !slices.Contains(log, "make page") {
		t.Errorf("status %d, commands %q", status, log)
	}

	ran := func(text string) bool {
		return slices.ContainsFunc(log, func(c string) bool { return strings.Contains(c, text) })
	}
	if ran("TestCampaign") {
		t.Errorf("the campaign ran after a failed command: %q", log)
	}

	if !ran("native-local") {
		t.Errorf("a failed run of part native stopped the others: %q", log)
	}

	for part, result := range map[string]string{"race": "PASS", "native": "FAIL", "api": "FAIL", "page": "PASS"} {
		closing := regexp.MustCompile(`(?m)^=== ` + part + `: ` + result + ` in \d+:\d\d$`)

		row := regexp.MustCompile(`(?m)^` + part + ` +\d+:\d\d  ` + result + `$`)
		if !closing.MatchString(out) || !row.MatchString(out) {
			t.Errorf("%s is not %s:\n%s", part, result, out)
		}
	}

	if status, log, _ := full("^make build", "race"); status == 0 || len(log) != 1 {
		t.Errorf("without programs: status %d, commands %q", status, log)
	}
}

// Wrong arguments are refused before a command runs.
func TestFullRefuses(t *testing.T) {
	full := standin(t)
	for _, args := range [][]string{{"race", "no-such"}, {"list", "race"}, {"-x"}, {""}, {"race fuzz"}} {
		status, log, out := full("", args...)
		if status != 2 || log[0] != "" {
			t.Errorf("%q: status %d, commands %q: %s", args, status, log, out)
		}

		for _, p := range fullParts(t) {
			if !strings.Contains(out, " "+p.Name+" ") {
				t.Errorf("%q: the error does not name %s: %s", args, p.Name, out)
			}
		}
	}

	for _, name := range []string{"FOR", "OUTAGE", "FUZZTIME", "READERTIME"} {
		t.Setenv(name, "1h30m")

		if status, log, out := full("", "page"); status != 2 || log[0] != "" || !strings.Contains(out, name) {
			t.Errorf("%s=1h30m: status %d, commands %q: %s", name, status, log, out)
		}

		t.Setenv(name, "10m")
	}

	t.Setenv("OVN_EBPF_SEED", "many")

	if status, log, out := full("", "page"); status != 2 || log[0] != "" || !strings.Contains(out, "OVN_EBPF_SEED=many") {
		t.Errorf("OVN_EBPF_SEED=many: status %d, commands %q: %s", status, log, out)
	}

	t.Setenv("OVN_EBPF_SEED", "")

	if status, log, out := full("", "-h"); status != 0 || log[0] != "" || !strings.Contains(out, "FOR=10m") {
		t.Errorf("-h: status %d, commands %q: %s", status, log, out)
	}
}

// elsewhere are targets that neither .ci/run nor .ci/full runs, with the reason.
var elsewhere = map[string]string{
	"bench-accept":    "changes the baseline",
	"bench-documents": "writes documents",
	"bench-scale":     "writes docs/scale.md",
	"clean":           "removes files",
	"generate":        "writes files; lint compares them",
	"help":            "prints",
	"test-vm":         "test/vm/suite -a runs all of it and more, part vm",
	"man":             "writes files",
	"mutate":          "reports, for people to judge",
	"release":         "test/release runs it in two clones, part release",
	"screenshot":      "writes a picture for docs; page runs its test",
	"vulncheck":       "its answer changes without a commit",
}

// .ci/run and .ci/full together run every target of the Makefile that has a test.
func TestTargetsRun(t *testing.T) {
	_, commands := runParts(t)
	ran := map[string]bool{}

	for _, command := range commands {
		if target, found := strings.CutPrefix(command, "make "); found {
			ran[strings.Fields(target)[0]] = true
		}
	}

	_, log, _ := standin(t)("")
	for _, command := range log {
		if target, found := strings.CutPrefix(command, "make "); found {
			ran[strings.Fields(target)[0]] = true
		}
	}

	for _, command := range []string{"test/release", "test/vm/suite -a"} {
		if !slices.Contains(log, command) {
			t.Errorf(".ci/full does not run %q: %q", command, log)
		}
	}

	documented := map[string]bool{}

	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		target := m[1]

		documented[target] = true
		if !ran[target] && elsewhere[target] == "" {
			t.Errorf("neither .ci/run nor .ci/full runs make %s, and elsewhere has no reason", target)
		}
	}

	for target := range ran {
		if !documented[target] {
			t.Errorf("make %s is no documented target", target)
		}
	}

	for target := range elsewhere {
		if !documented[target] {
			t.Errorf("make %s, in elsewhere, is no documented target", target)
		}
	}
}
