package kubelets

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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

func TestRepeat(t *testing.T) {
	specs := []Spec{{Name: "a [x]", State: "passed"}, {Name: "a [x] b", State: "failed"}, {Name: "c", State: "skipped"}, {Name: "d", State: "timedout"}}
	re := regexp.MustCompile(only("a [x]"))
	for _, s := range specs {
		if want := s.Name == "a [x]"; re.MatchString(s.Name) != want {
			t.Errorf("%s runs again: %t, want %t", s.Name, !want, want)
		}
	}
	got := replaced(specs, []Spec{{Name: "d", State: "passed"}})
	if err := (Suite{Name: "s"}).judge(got, nil); err == nil || !strings.Contains(err.Error(), "1 specs failed: a [x] b") {
		t.Errorf("judged %v", err)
	}
}

// vswitchdLog is from OVS 3.1: an abort, a kill, and another exit.
const vswitchdLog = `2026-11-22T13:25:16Z|00068|bridge|INFO|bridge br-int: added interface veth1 on port 5
ovs-vswitchd: ../lib/conntrack.c:1063: assertion conn->conn_type == CT_CONN_TYPE_DEFAULT failed in conn_update_state()
2026-11-22T13:25:27Z|00003|daemon_unix(monitor)|ERR|1 crashes: pid 20964 died, killed (Aborted), restarting
2026-11-22T13:26:00Z|00008|daemon_unix(monitor)|ERR|2 crashes: pid 24145 died, killed (Killed), restarting
2026-11-22T13:27:00Z|00008|daemon_unix(monitor)|ERR|3 crashes: pid 24146 died, killed (Aborted), restarting
`

func TestDisturbed(t *testing.T) {
	aborts, err := readAborts(strings.NewReader(vswitchdLog))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 22, 13, 25, 27, 0, time.UTC)
	if !slices.Equal(aborts, []time.Time{at}) {
		t.Fatalf("aborts at %v, want %v", aborts, at)
	}
	spec := func(name, state string, began, ended time.Duration) Spec {
		return Spec{Name: name, State: state, Began: at.Add(began), Ended: at.Add(ended)}
	}
	got := disturbed([]Spec{
		spec("in its time", "failed", -time.Minute, time.Second),
		spec("in its first second", "timedout", 900*time.Millisecond, time.Minute),
		spec("passed", "passed", -time.Minute, time.Minute),
		spec("before", "failed", -time.Minute, -time.Second),
		spec("after", "failed", time.Second, time.Minute),
	}, aborts)
	if want := []string{"in its time", "in its first second"}; !slices.Equal(got, want) {
		t.Errorf("run again: %q, want %q", got, want)
	}
	if got := disturbed([]Spec{spec("no abort", "failed", -time.Minute, time.Minute)}, nil); len(got) > 0 {
		t.Errorf("run again without an abort: %q", got)
	}
}
