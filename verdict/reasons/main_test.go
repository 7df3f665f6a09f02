package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const head = "package verdict\n\ntype Reason uint8\n\nconst (\n"

// TestRun_repeatsTheCommittedFiles: the committed table and header are those of the list.
func TestRun_repeatsTheCommittedFiles(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"verdict", "bpf"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	copyFile(t, "../"+list, filepath.Join(root, "verdict", list))

	if err := run(filepath.Join(root, "verdict")); err != nil {
		t.Fatal(err)
	}

	for _, file := range []string{"verdict/" + table, header} {
		want, got := read(t, filepath.Join("../..", file)), read(t, filepath.Join(root, file))
		if want != got {
			t.Errorf("%s is not what go generate ./verdict makes", file)
		}
	}
}

func TestParse_refuses(t *testing.T) {
	for name, tt := range map[string]struct{ lines, want string }{
		"no comment":       {"A Reason = 0", `A: the comment must have the form "name, class: packets"`},
		"no class":         {"// a: x\nA Reason = 0", "A: the comment must have the form"},
		"unknown class":    {"// a, wire to nowhere: x\nA Reason = 0", `A: unknown class "wire to nowhere"`},
		"no number":        {"// a, wire to host: x\nA Reason = iota", "A: its value is not a number"},
		"number twice":     {"// a, wire to host: x\nA Reason = 0\n// b, wire to host: x\nB Reason = 0", "A and B have the number 0"},
		"number left out":  {"// a, wire to host: x\nA Reason = 0\n// b, wire to host: x\nB Reason = 2", "B has the number 2, but there are 2 reasons"},
		"name twice":       {"// a, wire to host: x\nA Reason = 0\n// a, wire to host: x\nB Reason = 1", "two reasons have the name a"},
		"not a Go file":    {"A Reason = = 0", "expected"},
		"two values at it": {"// a, wire to host: x\nA Reason = 0, 1", "A: it has no number"},
	} {
		_, err := parse(head + tt.lines + "\n)\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestParse_wrappedComment: a comment may have several lines, and other constants do not count.
func TestParse_wrappedComment(t *testing.T) {
	got, err := parse(head + "// a_b, OVN dropped: x: one,\n// two\nAB Reason = 0\nother = 5\n)\n")
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}

	if r := got[0]; r.constant != "AB" || r.name != "a_b" || r.packet != "x: one, two" || r.class.macro != "ovn_dropped" {
		t.Errorf("%+v", r)
	}
}

// TestCHeader_newReasons: the classes of the list with two more reasons, whose numbers are not
// beside those of their classes.
func TestCHeader_newReasons(t *testing.T) {
	reasons, err := parse(read(t, "../"+list))
	if err != nil {
		t.Fatal(err)
	}

	const first = 69 // the conditions below name numbers, so later reasons are left out

	reasons = slices.DeleteFunc(reasons, func(r reason) bool { return r.number >= first })
	all := classes()
	reasons = append(reasons, reason{"A", "a", first, all[6], ""}, reason{"B", "b", first + 1, all[0], ""})

	text := string(cHeader(reasons))
	for _, want := range []string{
		"\tREASON_HOST_OVN = 68,\n\tREASON_A = 69,\n\tREASON_B = 70,\n\tREASON_MAX = 71,\n",
		"#define wire_to_host(reason) ((reason) <= 24 || (reason) >= 70)\n",
		"#define wire_dropped(reason) (((reason) >= 47 && (reason) <= 49))\n",
		"#define ovn_dropped(reason) (((reason) >= 56 && (reason) <= 63) || (reason) >= 69)\n",
		"#define ovn_to_host(reason) (((reason) >= 64 && (reason) <= 66))\n",
		"#define ovn_out(reason) ((reason) <= 55)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()

	if err := os.WriteFile(to, []byte(read(t, from)), 0o644); err != nil {
		t.Fatal(err)
	}
}
