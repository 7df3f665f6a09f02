package verdict

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/verdicts.md")

const docsPath = "../../../docs/verdicts.md"

// docs/verdicts.md is the table of cases; -update writes it.
func TestDocs(t *testing.T) {
	got := markdown()
	if *update {
		if err := os.WriteFile(docsPath, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +rules), go test -update writes it:\n%s", docsPath, diff)
	}
}

func markdown() string {
	var b strings.Builder
	b.WriteString(`# What becomes of a packet at the gateway

<!-- Made by go test ./agent/gateway/verdict -update. -->

The first line that fits decides. Its reason is the name of its counter (` + "`ovnkube gateway counters`" + `).
How the lines are meant is specified by package agent/gateway/verdict, against which the programs are tested.
`)
	for _, part := range []struct {
		dir   Direction
		title string
	}{
		{FromWire, "From the wire, at the uplink"},
		{FromOVN, "From OVN, at the gateway bridge"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| Packet | Verdict | Reason |\n|---|---|---|\n", part.title)
		for _, r := range Rules() {
			if r.Direction == part.dir {
				fmt.Fprintf(&b, "| %s | %s | `%s` |\n", r.Packet, r.Verdict, r.Name)
			}
		}
	}
	b.WriteString(`
Verdicts: ` + "`host`" + ` leaves the packet to the node's stack, ` + "`ovn`" + ` hands it to the gateway bridge, ` + "`both`" + ` is a copy each,
` + "`out`" + ` sends it out of the uplink, ` + "`drop`" + ` drops it.
The last line of each table holds while the uplink or the gateway bridge is missing.
`)
	return b.String()
}

// The tables in the doc comment of package bpf say the same, in the same order.
func TestProgramsDoc(t *testing.T) {
	doc, err := os.ReadFile("../../../bpf/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t\S.* {2}(host|ovn|both|out|drop) +([a-z0-9_, ]+)$`)
	var got, want []string
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		for name := range strings.SplitSeq(m[2], ", ") {
			got = append(got, m[1]+" "+name)
		}
	}
	for _, r := range Rules() {
		if r.Reason != PassUnconfigured && r.Reason != NoUplink { // in the text below the tables
			want = append(want, r.Verdict.String()+" "+r.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bpf/doc.go (-rules +doc):\n%s", diff)
	}
}
