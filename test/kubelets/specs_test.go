package kubelets

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const report = `[{"SpecReports":[
{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},
{"ContainerHierarchyTexts":["[sig-network] A"],"LeafNodeType":"It","LeafNodeText":"works","State":"passed","RunTime":1000000000},
{"ContainerHierarchyTexts":["B"],"LeafNodeType":"It","LeafNodeText":"left out","State":"skipped"},
{"ContainerHierarchyTexts":["C"],"LeafNodeType":"It","LeafNodeText":"cannot","State":"skipped","Failure":{"Message":"no such feature"}},
{"ContainerHierarchyTexts":["D"],"LeafNodeType":"It","LeafNodeText":"breaks","State":"failed","Failure":{"Message":"it broke"}}
]}]`

func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}

	specs, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	Print(&out, Suite{Name: "s"}, specs)

	const want = `skipped    0 s  C cannot
                no such feature
failed     0 s  D breaks
                it broke
passed     1 s  [sig-network] A works
s: 1 failed, 1 passed, 1 skipped
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestJudge(t *testing.T) {
	passed, failed := Spec{Name: "a", State: "passed"}, Spec{Name: "b", State: "interrupted"}
	for _, c := range []struct {
		name  string
		specs []Spec
		ran   error
		want  string
	}{
		{"all", []Spec{passed, passed}, nil, ""},
		{"one failed", []Spec{passed, failed}, errors.New("exit status 1"), "1 specs failed: b"},
		{"too few", []Spec{passed}, nil, "1 specs passed, not 2"},
		{"a skip is no pass", []Spec{passed, {Name: "c", State: "skipped"}}, nil, "1 specs passed, not 2"},
		{"ginkgo failed", []Spec{passed, passed}, errors.New("exit status 1"), "exit status 1"},
	} {
		err := Suite{Name: "s", Least: 2}.judge(c.specs, c.ran)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
