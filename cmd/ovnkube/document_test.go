package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md")

// The tables of docs/configuration.md match the table of settings.
func TestDocument(t *testing.T) {
	s := newSettings("")
	document.Check(t, "../../docs/configuration.md", map[string]string{
		"settings": settingsTable(s), "aliases": aliasTable(s), "unused": unusedTable(s),
	}, *update, "go test ./cmd/ovnkube -run TestDocument -update")
}

func settingsTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| flag | key of the file | default | role | meaning |\n|---|---|---|---|---|\n")

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

	for _, u := range s.UnusedNames {
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

// Names are unique, and sections and keys are in lower case.
func TestSettingNamesAreUnique(t *testing.T) {
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

	for _, u := range s.UnusedNames {
		once(strings.TrimSuffix("-"+u.Flag, "-"))
		once(key(u.Section, u.Key))
	}

	for name := range seen {
		if name != strings.ToLower(name) {
			t.Errorf("%s is not in lower case", name)
		}
	}
}
