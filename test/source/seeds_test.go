package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ownSeed matches a test that chooses its seed by itself.
var ownSeed = regexp.MustCompile(`(?i)seed.* :?= .*(rand\.(U?[Ii]nt|Uint64)|Unix[N]ano\()`)

// Random tests have the seeds of package randomtest: fixed ones, unless a variable has another one.
func TestSeeds_areFixed(t *testing.T) {
	seeded := 0

	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}

		text, err := os.ReadFile(filepath.Join(top, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, but not yet committed
			continue
		}

		if err != nil {
			t.Fatal(err)
		}

		seeded += strings.Count(string(text), "randomtest.Seed(t")
		if m := ownSeed.FindString(string(text)); m != "" {
			t.Errorf("%s: %q: a random test needs randomtest.Seed", name, m)
		}
	}

	if seeded < 20 {
		t.Errorf("%d random tests use package randomtest", seeded)
	}
}

// Each run of .ci/full has a new seed, which all its commands get, except those of fixed seeds in part
// model. Part order has it beside its fixed seeds.
func TestFull_searchesWithNewSeeds(t *testing.T) {
	t.Parallel()

	seeds := func(set string) (seed string) {
		t.Helper()
		status, log, out := standinScript(t, ".ci/full", "", []string{"OVN_EBPF_SEED=" + set, "SEEDS="}, "race", "model", "order", "floor")

		m := regexp.MustCompile(`(?m)^=== random tests: repeat with OVN_EBPF_SEED=(\d+)$`).FindStringSubmatch(out)
		if status != 0 || m == nil {
			t.Fatalf("status %d, no seed: %s", status, out)
		}

		fixed := 0

		for _, command := range log {
			switch {
			case strings.HasSuffix(command, " with seed "+m[1]+" and "):
			case strings.Contains(command, "^TestAnyOrder") && strings.HasSuffix(command, " with seed "+m[1]+" and 102,201,1001,1002,1003,"+m[1]):
			case strings.Contains(command, "^TestGateway_agreesWithModel") && strings.HasSuffix(command, " with seed  and "):
				fixed++
			default:
				t.Errorf("seed %s: command %q", m[1], command)
			}
		}

		if fixed != 1 {
			t.Errorf("%d commands with fixed seeds, want 1", fixed)
		}

		return m[1]
	}
	if first, second := seeds(""), seeds(""); first == second {
		t.Errorf("two runs have the seed %s", first)
	}

	if got := seeds("7"); got != "7" {
		t.Errorf("seed %s, want the given one, 7", got)
	}
}
