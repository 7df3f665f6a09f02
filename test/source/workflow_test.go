package source

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The hosted workflow runs the make targets of .ci/run, with the same arguments.
func TestWorkflow(t *testing.T) {
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^part [a-z0-9-]+ make ([^#\n]+)`).FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		want = append(want, strings.TrimSpace(m[1]))
	}
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Part []string }
			}
			Steps []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/ci.yaml")), &workflow); err != nil {
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
}
