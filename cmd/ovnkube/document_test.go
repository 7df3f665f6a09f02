package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
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
		"settings": settingsTables(t, s), "sources": sourceTable(s), "aliases": aliasTable(s), "unused": unusedTable(s),
	}, *update, "go test ./cmd/ovnkube -run TestDocument -update")
}

// tables are the tables of settings. Each has a heading, which begins with the programs that have the
// settings (see programsOf), and the flags of its rows.
var tables = []struct {
	heading string
	flags   []string
}{
	{"Controller and agent, with the same value", []string{
		"mode", "cluster-subnets", "k8s-service-cidrs", "allow-external-ips", "allow-pod-tunnels",
		"host-networks", "chassis-name", "trust-endpoint-slices", "namespace-frontends", "service-table-share", "service-flows-per-node", "gateway-bfd",
	}},
	{"Controller and agent: MTU and SNAT ports", []string{"mtu", "snat-port-range"}},
	{"Controller and agent: API server", []string{
		"kubeconfig", "k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert",
	}},
	{"Controller and agent: OVN's databases", []string{
		"nb-address", "nb-client-privkey", "nb-client-cert", "nb-client-cacert",
		"sb-address", "sb-client-privkey", "sb-client-cert", "sb-client-cacert",
	}},
	{"Controller and agent: metrics and logs", []string{
		"metrics-bind-address", "node-server-cert", "node-server-privkey", "metrics-client-ca-file",
		"loglevel", "logfile", "logfile-maxsize", "logfile-maxbackups", "logfile-maxage",
	}},
	{"Controller", []string{
		"leader-elect", "identity", "lease-namespace", "ha-election-lease-duration",
		"allocate-node-subnets", "gateway-v4-join-subnet", "gateway-v6-join-subnet",
		"remove-chassis", "acl-logging-rate-limit", "pod-annotation-ovn",
	}},
	{"Controller in underlay mode", []string{
		"cloud", "clouds-file", "cluster-name", "router-id", "subnet-pool", "subnet-pool-6",
		"security-groups", "max-ports", "release-after", "request-rate", "workers",
	}},
	{"Agent: node and Open vSwitch", []string{
		"node-name", "run-dir", "pin-dir", "cgroup-path", "ovsdb", "ovs-rundir", "ovn-rundir",
		"datapath", "avoid-null-nat", "encap-ip", "encap-port", "encap-type",
	}},
	{"Agent: gateway", []string{
		"gateway-interface", "gateway-layout", "gateway-backend", "gateway-mode", "gateway-nexthop",
		"gateway-address", "gateway-vlanid", "routable-pods", "nodeport", "service-node-port-range",
		"gateway-shortcuts", "gateway-shadow-rate",
	}},
	{"Agent: pods and CNI", []string{"cni-socket", "cni-conf-dir", "cni-exclusive"}},
	{"Agent: metrics and health", []string{
		"healthz-bind-address", "counted-pods", "counted-service-ports",
	}},
	{"Agent in underlay mode", []string{"underlay-interface", "vif-id", "underlay-rest"}},
}

// settingsTables returns the tables of settings. A cell has the first sentence of a setting's usage.
// Further sentences are in a list below the table, and an arrow in the cell points to them. Every
// setting must be in one table.
func settingsTables(t *testing.T, s *settings) string {
	t.Helper()

	missing := map[string]*setting.Setting{}
	for _, o := range s.Settings {
		missing[o.Flag] = o
	}

	var b strings.Builder

	for _, table := range tables {
		var notes noteList

		fmt.Fprintf(&b, "\n### %s\n\n| flag | key in the file | default | meaning |\n|---|---|---|---|\n", table.heading)

		for _, name := range table.flags {
			o := missing[name]
			if o == nil {
				t.Fatalf("table %q: setting %s does not exist, or is also in another table", table.heading, name)
			}

			delete(missing, name)

			if programs, _, _ := strings.Cut(table.heading, ":"); programs != programsOf(o) {
				t.Errorf("table %q has setting %s of: %s", table.heading, name, programsOf(o))
			}

			meaning, dflt, note := explained(o)
			if note != "" {
				meaning += " ↓"

				notes.add(name, note)
			}

			fmt.Fprintf(&b, "| `%s` | `[%s] %s` | %s | %s |\n", name, o.Section, o.Key, dflt, meaning)
		}

		b.WriteString(notes.String())
	}

	for name, o := range missing {
		t.Errorf("setting %s is in no table: add it to one of: %s", name, programsOf(o))
	}

	return b.String() + "\n"
}

// programsOf returns the programs that have a setting, as in the headings of tables.
func programsOf(o *setting.Setting) string {
	programs := map[setting.Role]string{
		0: "Controller and agent", roleController: "Controller", roleAgent: "Agent",
	}[o.Role]

	switch {
	case strings.HasSuffix(o.Usage, sameValue):
		return programs + ", with the same value"
	case strings.HasPrefix(o.Usage, underlayOnly):
		return programs + " in underlay mode"
	}

	return programs
}

// noteList is the list below a table. Settings with the same note share an item.
type noteList []struct{ names, note string }

func (l *noteList) add(flag, note string) {
	name := "`" + flag + "`"

	for i, n := range *l {
		if n.note == note {
			(*l)[i].names += ", " + name
			return
		}
	}

	*l = append(*l, struct{ names, note string }{name, note})
}

func (l noteList) String() string {
	var b strings.Builder

	for i, n := range l {
		if i == 0 {
			b.WriteString("\n")
		}

		b.WriteString(wrapped("- **"+n.names+".** "+n.note) + "\n")
	}

	return b.String()
}

// underlayOnly begins the usage of settings that only underlay mode has.
const underlayOnly = "in underlay mode, "

// required is the note of settings that have no default and must be set.
const required = "Required."

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

	switch value := o.Value.String(); {
	case note == required:
		dflt, note = "required", ""
	case value != "":
		dflt = "`" + value + "`"
	case o.Flag == "metrics-bind-address":
		dflt = "`" + controllerMetrics + "` of the controller, `" + agentMetrics + "` of the agent"
	case dflt == "":
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
	b.WriteString("| flag | key in the file | sets |\n|---|---|---|\n")

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

// unusedTable has a row for each reason why names have no effect. A row lists keys by section, and
// flags that have another name than their key.
func unusedTable(s *settings) string {
	type row struct{ reason, section, keys, flags string }

	var rows []*row

	for _, u := range s.UnusedNames {
		i := slices.IndexFunc(rows, func(r *row) bool { return r.reason == u.Why })
		if i < 0 {
			i = len(rows)
			rows = append(rows, &row{reason: u.Why})
		}

		r := rows[i]

		switch {
		case u.Key == "":
		case u.Section == r.section:
			r.keys += ", " + named("", u.Key)
		default:
			r.keys += separator(r.keys, "; ") + named("", "["+u.Section+"]") + " " + named("", u.Key)
			r.section = u.Section
		}

		if u.Flag != "" && u.Flag != u.Key {
			r.flags += separator(r.flags, ", ") + named("", u.Flag)
		}
	}

	var b strings.Builder
	b.WriteString("| reason | keys of the file | other flags |\n|---|---|---|\n")

	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", otherDocument.ReplaceAllString(r.reason, "([$1]($1))"), r.keys, r.flags)
	}

	return b.String()
}

// separator returns what to write between a list and its next item.
func separator(list, between string) string {
	if list == "" {
		return ""
	}

	return between
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
