package kubelets

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

// TestChapters: the document has commands below each heading that clusters type, and Helm's
// commands use a packed chart that is in their directory.
func TestChapters(t *testing.T) {
	blocks := installBlocks(t)
	for _, heading := range Typed() {
		scripts := script(blocks, heading)
		if len(scripts) == 0 {
			t.Errorf("%s has no commands below %q", InstallDocument, heading)
		}

		for _, s := range scripts {
			for line := range strings.Lines(s) {
				isThere := func(chart string) bool { return strings.Contains(line, " "+chart+" ") }
				if strings.Contains(line, ".tgz") != slices.ContainsFunc(documentCharts(), isThere) {
					t.Errorf("%q: %q names another chart than %q", heading, line, documentCharts())
				}
			}
		}
	}
}

// TestSampleAddressesOccur: the document's commands that install the chart have the addresses that
// clusters replace by their own, and plain manifests have the values of a file.
func TestSampleAddressesOccur(t *testing.T) {
	blocks := installBlocks(t)

	for heading, want := range map[string][]string{
		installing:         {sampleHost, samplePort},
		installingOnOthers: {sampleHost, samplePort, "ssl:192.0.2.1:6641", "ssl:192.0.2.1:6642"},
		installingPlain:    {" -f " + valuesFile + " "},
		updatingPlain:      {" -f " + valuesFile + " "},
		uninstallingPlain:  {" -f " + valuesFile + " "},
	} {
		text := strings.Join(script(blocks, heading), "\n")
		for _, w := range want {
			if strings.Count(text, w) != 1 {
				t.Errorf("%q has %d times %q, want it once:\n%s", heading, strings.Count(text, w), w, text)
			}
		}
	}
}

// TestValuesAreAppended: Helm's commands that know no values of a release get the cluster's.
func TestValuesAreAppended(t *testing.T) {
	blocks, err := document.Blocks("# a\n```\nhelm install x\nhelm upgrade x\n```\n## b\n```\nhelm template x > y\nhelm template -f values.yaml x\nkubectl get z\n```\n```\none\n```\n")
	if err != nil {
		t.Fatal(err)
	}

	got := [][]string{script(blocks, "a"), script(blocks, "b"), script(blocks, "c")}

	want := [][]string{{"helm install x -f values.yaml\nhelm upgrade x"}, {"helm template x > y -f values.yaml\nhelm template -f values.yaml x\nkubectl get z", "one"}, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scripts (-want +got):\n%s", diff)
	}
}

// TestRunIsComplete: a run that has typed all but one of its chapters names the one.
func TestRunIsComplete(t *testing.T) {
	for _, tc := range []struct {
		r    run
		tool string
	}{{runDefault, ""}, {runCentral, ""}, {runDeployment, kubectl}, {runDeployment, helm}} {
		typed := &typing{done: map[string]bool{}}

		all := chapters(tc.r, tc.tool)
		for _, heading := range all[1:] {
			typed.done[heading] = true
		}

		if err := typed.complete(tc.r, tc.tool); err == nil || !strings.Contains(err.Error(), all[0]) {
			t.Errorf("%s %s without %q: %v", tc.r, tc.tool, all[0], err)
		}

		typed.done[all[0]] = true
		if err := typed.complete(tc.r, tc.tool); err != nil {
			t.Errorf("%s %s: %v", tc.r, tc.tool, err)
		}
	}
}

// TestRunsAreInCI: CI has the runs that type the chapters.
func TestRunsAreInCI(t *testing.T) {
	for file, lines := range map[string][]string{
		"../../.ci/run":  {"part e2e make e2e"},
		"../../Makefile": {"$(or $(SUITES),-uninstall conformance)"},
		"../../.ci/full": {`make e2e SUITES="-central -uninstall"`, "for tool in " + strings.Join(Tools(), " ") + "; do", `make e2e SUITES="-deployment $tool -controllers $controllers"`},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		for _, line := range lines {
			if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(l string) bool {
				return !strings.HasPrefix(strings.TrimSpace(l), "#") && strings.Contains(l, line)
			}) {
				t.Errorf("%s has no %q any more", file, line)
			}
		}
	}
}

func installBlocks(t *testing.T) []document.Block {
	t.Helper()

	text, err := os.ReadFile("../../" + InstallDocument)
	if err != nil {
		t.Fatal(err)
	}

	blocks, err := document.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}

	return blocks
}
