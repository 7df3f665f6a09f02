package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md")

const document = "../../docs/configuration.md"

// TestDocument: the tables of docs/configuration.md are those of the table of settings.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	s := newSettings("")
	want := string(text)
	for name, table := range map[string]string{"settings": settingsTable(s), "aliases": aliasTable(s), "unused": unusedTable(s)} {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		head, rest, found := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("no %s…%s", begin, end)
		}
		want = head + begin + table + end + tail
	}
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want != string(text) && !*update {
		t.Errorf("%s is not what the table says: go test ./cmd/ovnkube -run TestDocument -update", document)
	}
}

func settingsTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| flag | file | default | whose | what |\n|---|---|---|---|---|\n")
	for _, o := range s.Settings {
		whose := map[setting.Role]string{0: "cluster", roleController: "controller", roleAgent: "agent"}[o.Role]
		what := strings.NewReplacer("`", "", "\n", " ", "|", `\|`).Replace(o.Usage)
		if o.Env != "" {
			what += "; also `" + o.Env + "`"
		}
		if o.ExternalID != "" {
			what += "; `external_ids:" + o.ExternalID + "`"
		}
		dflt := o.Value.String()
		if dflt != "" {
			dflt = "`" + dflt + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `[%s] %s` | %s | %s | %s |\n", o.Flag, o.Section, o.Key, dflt, whose, what)
	}
	return b.String()
}

func aliasTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| flag | file | setting |\n|---|---|---|\n")
	for _, a := range s.Aliases {
		mark := ""
		if a.Deprecated {
			mark = "*"
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", named(mark, a.Flag), named(mark, key(a.Section, a.Key)), a.For)
	}
	return b.String()
}

func unusedTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| file | flag | why |\n|---|---|---|\n")
	for _, u := range s.Unused {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", named("", key(u.Section, u.Key)), named("", u.Flag), u.Why)
	}
	return b.String()
}

func key(section, name string) string {
	if name == "" {
		return ""
	}
	return "[" + section + "] " + name
}

func named(mark, name string) string {
	if name == "" {
		return ""
	}
	return mark + "`" + name + "`" + mark
}

// TestTable: no name means two things, and all that is given is written where
// it is read: sections and keys in lower case.
func TestTable(t *testing.T) {
	s := newSettings("")
	seen := map[string]bool{}
	once := func(name string) {
		if name != "" && seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
	}
	for _, o := range s.Settings {
		once("-" + o.Flag)
		once(key(o.Section, o.Key))
		if o.Key == "" || o.Section == "" || o.Usage == "" {
			t.Errorf("%s lacks a key or its explanation", o.Flag)
		}
	}
	for _, a := range s.Aliases {
		once(strings.TrimSuffix("-"+a.Flag, "-"))
		once(key(a.Section, a.Key))
	}
	for _, u := range s.Unused {
		once(strings.TrimSuffix("-"+u.Flag, "-"))
		once(key(u.Section, u.Key))
	}
	for name := range seen {
		if name != strings.ToLower(name) {
			t.Errorf("%s is not in lower case", name)
		}
	}
}
