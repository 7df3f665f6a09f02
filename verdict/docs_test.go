package verdict

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/verdicts.md")

const docsPath = "../docs/verdicts.md"

// docs/verdicts.md tells the rules; -update writes it.
func TestRules_docs(t *testing.T) {
	got := markdown(t)
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

func markdown(t *testing.T) string {
	t.Helper()

	page := template.New("verdicts.md.tmpl").Funcs(template.FuncMap{
		"wire": func() []Rule { return from(FromWire) },
		"ovn":  func() []Rule { return from(FromOVN) },
		"host": func() []Rule { return from(FromHost) },
		"pod":  func() []Rule { return from(FromPod) },
	})

	var b strings.Builder
	if err := template.Must(page.ParseFiles("testdata/verdicts.md.tmpl")).Execute(&b, nil); err != nil {
		t.Fatal(err)
	}

	return b.String()
}

func from(dir Direction) []Rule {
	return slices.DeleteFunc(Rules(), func(r Rule) bool { return r.Direction != dir })
}
