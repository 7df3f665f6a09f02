package source

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// partsTable has the times of two parts.
const partsTable = `
| part | warm | cold | what |
|---|---|---|---|
| quick | 1:00 | 2:00 | |
| lengthy | 0:01 | 0:02 | |
| all | 1:01 | 2:02 | |
`

// partsOf runs commands with the functions of test/parts, in a directory that has a CONTRIBUTING.md
// with partsTable. The cache has the programs at the given paths. It returns the lines of the output
// that name slow parts, and the exit status.
func partsOf(t *testing.T, commands string, cached ...string) (slow []string, status int) {
	t.Helper()
	dir := t.TempDir()

	files := map[string]string{
		"CONTRIBUTING.md": "The times:\n" + partsTable + "\n| lengthy | 9:00 | 9:00 | of another table |\n",
		"test/parts":      read(t, "test/parts"),
		"run":             "cd " + dir + "\n. test/parts\n" + commands + "\nfinish\n",
	}
	for _, program := range cached {
		files["cache/"+program] = ""
	}

	writeAll(t, dir, files)
	status, out := statusOf(t, []string{"OVN_EBPF_CACHE=" + filepath.Join(dir, "cache")}, "bash", filepath.Join(dir, "run"))
	t.Log(out)

	return regexp.MustCompile(`(?m)^SLOW .*`).FindAllString(out, -1), status
}

// warmCache has the programs whose presence makes a cache warm.
var warmCache = []string{"tools/golangci-lint", "kube-v1.2.3/kube-apiserver", "kube-v1.2.3/e2e.test", "vm/6.12/vmlinuz"}

// A part that takes over 1.25 times as long as CONTRIBUTING.md's table says is named, but does not
// fail the run.
func TestParts_nameSlowOnes(t *testing.T) {
	slow, status := partsOf(t, "part quick true\npart lengthy sleep 2\npart unlisted true", warmCache...)

	want := regexp.MustCompile(`^SLOW lengthy: 0:\d\d, over 1.25 times the 0:01 that CONTRIBUTING.md has for warm caches$`)
	if status != 0 || len(slow) != 1 || !want.MatchString(slow[0]) {
		t.Errorf("status %d, slow parts %q", status, slow)
	}
}

// A part that takes exactly 1.25 times as long is not slow, but a second more makes it slow. No part
// can wait that exactly, so the comparison is called with numbers.
func TestParts_compare(t *testing.T) {
	slow, _ := partsOf(t, "compare quick 75\ncompare quick 76\ncompare unlisted 999", warmCache...)

	want := []string{"SLOW quick: 1:16, over 1.25 times the 1:00 that CONTRIBUTING.md has for warm caches"}
	if d := cmp.Diff(want, slow); d != "" {
		t.Error(d)
	}

	// The column cold applies if a program is missing in the cache.
	for i := range warmCache {
		cached := slices.Delete(slices.Clone(warmCache), i, i+1)
		slow, _ := partsOf(t, "compare quick 150\ncompare quick 151", cached...)

		want := []string{"SLOW quick: 2:31, over 1.25 times the 2:00 that CONTRIBUTING.md has for cold caches"}
		if d := cmp.Diff(want, slow); d != "" {
			t.Errorf("without %s: %s", warmCache[i], d)
		}
	}
}
