package main

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/test/document"
)

var update = flag.Bool("update", false, "write the tables of docs/configuration.md")

// The tables of docs/configuration.md match the table of settings.
func TestDocument(t *testing.T) {
	s := newSettings("")
	document.Check(t, "../../docs/configuration.md", map[string]string{
		"settings": settingsTables(s), "sources": sourceTable(s), "aliases": aliasTable(s), "unused": unusedTable(s),
	}, *update, "go test ./cmd/ovnkube -run TestDocument -update")
}

// settingsTables returns a table of settings for each heading. A cell has the first sentence of a
// setting's usage. Further sentences are in a list below the table.
func settingsTables(s *settings) string {
	is := func(role setting.Role, underlay bool) func(*setting.Setting) bool {
		return func(o *setting.Setting) bool {
			return o.Role == role && strings.HasPrefix(o.Usage, underlayOnly) == underlay
		}
	}
	same := func(o *setting.Setting) bool { return strings.HasSuffix(o.Usage, sameValue) }

	var b strings.Builder

	for _, part := range []struct {
		heading string
		has     func(*setting.Setting) bool
	}{
		{"Controller and agent, with the same value", same},
		{"Controller and agent", func(o *setting.Setting) bool { return o.Role == 0 && !same(o) }},
		{"Controller", is(roleController, false)},
		{"Controller in underlay mode", is(roleController, true)},
		{"Agent", is(roleAgent, false)},
		{"Agent in underlay mode", is(roleAgent, true)},
	} {
		var notes strings.Builder

		fmt.Fprintf(&b, "\n### %s\n\n| flag | key of the file | default | meaning |\n|---|---|---|---|\n", part.heading)

		for _, o := range s.Settings {
			if !part.has(o) {
				continue
			}

			meaning, dflt, note := explained(o)
			fmt.Fprintf(&b, "| `%s` | `[%s] %s` | %s | %s |\n", o.Flag, o.Section, o.Key, dflt, meaning)

			if note != "" {
				fmt.Fprintf(&notes, "%s\n", wrapped("- **`"+o.Flag+"`.** "+note))
			}
		}

		if notes.Len() > 0 {
			b.WriteString("\n" + notes.String())
		}
	}

	return b.String() + "\n"
}

// underlayOnly begins the usage of settings that only underlay mode has.
const underlayOnly = "in underlay mode, "

var (
	otherDocument = regexp.MustCompile(`\(docs/([a-z-]+\.md)\)`)
	word          = regexp.MustCompile(`[^\s()]+`)
	codeWord      = regexp.MustCompile(`^(--?[a-z][a-z0-9-]+|~?/[\w./-]*|(unix|tcp|ssl):[A-Z:]*|[A-Z]+[-:][A-Z]+|CIDR\S*|HOSTLEN|system-id|clouds\.yaml|\.\S+|k8s\.\S+|\w+_\w+)$`)
	choiceName    = regexp.MustCompile(`\b(In|With) ([a-z-]+),`)
)

// explained returns the meaning of a setting in a sentence, its default, and further sentences.
func explained(o *setting.Setting) (meaning, dflt, note string) {
	usage := strings.NewReplacer("`", "", "|", `\|`).Replace(o.Usage)
	usage = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(usage, underlayOnly), "the "), sameValue)
	usage = otherDocument.ReplaceAllString(usage, "([$1]($1))")
	usage = word.ReplaceAllStringFunc(usage, func(w string) string {
		bare := strings.TrimRight(w, ".,;")
		if !codeWord.MatchString(bare) {
			return w
		}

		return "`" + bare + "`" + w[len(bare):]
	})
	usage = choiceName.ReplaceAllString(usage, "$1 `$2`,")

	meaning, note, _ = strings.Cut(usage, ". ")
	if note != "" {
		note += "."
	}

	meaning, dflt, _ = strings.Cut(meaning, "; default: ")
	if o.Flag == "metrics-bind-address" {
		dflt = "`" + controllerMetrics + "` of the controller, `" + agentMetrics + "` of the agent"
	}

	if v := o.Value.String(); v != "" {
		dflt = "`" + v + "`"
	}

	if dflt == "" {
		dflt = "none"
	}

	return meaning, dflt, note
}

// wrapped returns an item of a list in lines of at most 100 columns.
func wrapped(item string) string {
	var (
		b     strings.Builder
		width int
	)

	for i, word := range strings.Fields(item) {
		n := utf8.RuneCountInString(word)

		switch {
		case i == 0:
		case width+1+n > 100:
			b.WriteString("\n  ")

			width = 2
		default:
			b.WriteString(" ")

			width++
		}

		b.WriteString(word)

		width += n
	}

	return b.String()
}

func aliasTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| flag | key of the file | sets |\n|---|---|---|\n")

	for _, a := range s.Aliases {
		mark := ""
		if a.Deprecated {
			mark = "*"
		}

		fmt.Fprintf(&b, "| %s | %s | %s |\n", named(mark, a.Flag), named(mark, key(a.Section, a.Key)), assigned(a))
	}

	return b.String()
}

// assigned returns the settings that an alias sets, for a boolean also their value.
func assigned(a setting.Alias) string {
	if a.To == nil {
		return "`" + a.For + "`"
	}

	if a.Bool {
		for _, value := range []string{"true", "false"} {
			if to, err := a.To(value); err == nil && len(to) == 1 {
				return "`" + to[0].Flag + "=" + to[0].Value + "`, if it is " + value
			}
		}
	}

	var out []string

	to, _ := a.To("192.0.2.0/24,2001:db8::/64")
	for _, t := range to {
		out = append(out, "`"+t.Flag+"`")
	}

	return strings.Join(out, ", ")
}

// sourceTable returns the settings with further names in the environment or in external_ids.
func sourceTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| setting | variable | key of `external_ids` |\n|---|---|---|\n")

	for _, o := range s.Settings {
		if o.Env != "" || o.ExternalID != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Flag, named("", o.Env), named("", o.ExternalID))
		}
	}

	return b.String()
}

func unusedTable(s *settings) string {
	var b strings.Builder
	b.WriteString("| key of the file | flag | reason |\n|---|---|---|\n")

	for _, u := range s.UnusedNames {
		why := otherDocument.ReplaceAllString(u.Why, "([$1]($1))")
		fmt.Fprintf(&b, "| %s | %s | %s |\n", named("", key(u.Section, u.Key)), named("", u.Flag), why)
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
