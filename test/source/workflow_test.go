package source

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The hosted workflow runs the make targets of .ci/run, with the same arguments, and page, because a
// hosted machine can install Chromium. Its image and its actions are pinned.
func TestWorkflow(t *testing.T) {
	want := []string{"page"}

	_, commands := runParts(t)
	for _, command := range commands {
		if target, found := strings.CutPrefix(command, "make "); found {
			want = append(want, target)
		}
	}

	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Part []string }
			}
			Container struct{ Image string }
			Steps     []struct{ Run string }
		}
	}

	text := read(t, ".github/workflows/ci.yaml")
	if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
		t.Fatal(err)
	}

	job := workflow.Jobs["part"]
	got := job.Strategy.Matrix.Part

	slices.Sort(want)
	slices.Sort(got)

	if d := cmp.Diff(want, got); d != "" || len(want) < 5 {
		t.Errorf("targets of .ci/run (-) and of the workflow (+): %s", d)
	}

	if last := job.Steps[len(job.Steps)-1].Run; last != "make ${{ matrix.part }}" {
		t.Errorf("the last step runs %q", last)
	}

	if !regexp.MustCompile(`^debian:bookworm@sha256:[0-9a-f]{64}$`).MatchString(job.Container.Image) {
		t.Errorf("the image %s is not pinned by digest", job.Container.Image)
	}

	pinned := regexp.MustCompile(`uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.Contains(line, "uses:") && !pinned.MatchString(line) {
			t.Errorf("%q is not pinned by commit, with its version", line)
		}
	}
}
