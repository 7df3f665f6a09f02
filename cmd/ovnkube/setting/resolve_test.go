package setting

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// word is a value that rejects "bad".
type word struct{ v string }

func (v *word) String() string { return v.v }

func (v *word) Set(s string) error {
	if s == "bad" {
		return io.ErrUnexpectedEOF
	}

	v.v = s

	return nil
}

// newSet returns a Set whose setting has its own names and general ones of ovn-kubernetes.
func newSet() (*Set, *word) {
	v := &word{"default"}

	return New(Table{
		Settings: []*Setting{{Flag: "nb-address", Section: "ovnnorth", Key: "address", Env: "OVN_NB", ExternalID: "ovn-nb", Value: v}},
		Aliases: []Alias{
			{Flag: "old", Section: "old", Key: "nb", Deprecated: true, For: "nb-address"},
			{Section: "default", Key: "local", For: "nb-address", Bool: true, To: When(true, "nb-address", "local")},
		},
		UnusedNames: []UnusedName{{Flag: "unused", Section: "default", Key: "unused", Bool: true, Why: "not needed here"}},
	}), v
}

// Within a source, the setting's own name takes precedence over the general one, as it is more
// specific to this program.
func TestOwnNameWins(t *testing.T) {
	const own, general = "ovn-ebpf-nb-address", "ovn-nb"
	for name, tt := range map[string]struct {
		ids, env map[string]string
		want     string
		origin   Origin
	}{
		"own key of external_ids":      {map[string]string{own: "own", general: "general"}, nil, "own", Origin{ExternalIDs, "external_ids:" + own}},
		"general key of external_ids":  {map[string]string{general: "general"}, nil, "general", Origin{ExternalIDs, "external_ids:" + general}},
		"an empty key counts as none":  {map[string]string{own: "", general: "general"}, nil, "general", Origin{ExternalIDs, "external_ids:" + general}},
		"a key of others":              {map[string]string{"": "empty", "other": "x"}, nil, "default", Origin{}},
		"own variable":                 {nil, map[string]string{"OVNKUBE_NB_ADDRESS": "own", "OVN_NB": "general"}, "own", Origin{Environment, "$OVNKUBE_NB_ADDRESS"}},
		"general variable":             {nil, map[string]string{"OVN_NB": "general"}, "general", Origin{Environment, "$OVN_NB"}},
		"an empty variable is none":    {nil, map[string]string{"OVNKUBE_NB_ADDRESS": ""}, "default", Origin{}},
		"general variable over own id": {map[string]string{own: "own"}, map[string]string{"OVN_NB": "general"}, "general", Origin{Environment, "$OVN_NB"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := newSet()

			lookup := func(name string) (string, bool) {
				value, is := tt.env[name]
				return value, is
			}
			if problems := s.Resolve(Sources{ExternalIDs: tt.ids, Environment: lookup}); len(problems) > 0 {
				t.Error(problems)
			}

			if got := s.Origin("nb-address"); v.v != tt.want || got != tt.origin {
				t.Errorf("%q from %v, want %q from %v", v.v, got, tt.want, tt.origin)
			}
		})
	}
}

// The highest source wins, and overridden values are still checked.
func TestHighestSourceWins(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		file     string
		ids, env string
		want     string
		problems []string
	}{
		"file over external_ids":       {file: "[ovnnorth]\naddress=file", ids: "ids", want: "file"},
		"environment over file":        {file: "[ovnnorth]\naddress=file", env: "env", want: "env"},
		"command line over all":        {args: []string{"-nb-address=flag"}, file: "[ovnnorth]\naddress=bad", ids: "ids", env: "env", want: "flag"},
		"a bad value leaves the last":  {file: "[ovnnorth]\naddress=bad", ids: "ids", want: "ids", problems: []string{"f:2: nb-address: unexpected EOF"}},
		"deprecated key":               {file: "[old]\nnb=x", want: "x", problems: []string{"f:2: [old] nb is deprecated, use [ovnnorth] address"}},
		"deprecated flag, one warning": {args: []string{"-old=1", "-old=2"}, want: "2", problems: []string{"-old: deprecated, use -nb-address"}},
		"unused flag":                  {args: []string{"-unused"}, want: "default", problems: []string{"-unused: no effect: not needed here"}},
		"unused flag that is off":      {args: []string{"-unused=false"}, want: "default"},
		"unused key":                   {file: "[default]\nunused=true", want: "default", problems: []string{"f:2: [default] unused has no effect: not needed here"}},
		"unused key that is off":       {file: "[default]\nunused=false", want: "default"},
		"unused key, no boolean":       {file: "[default]\nunused=perhaps", want: "default", problems: []string{`f:2: [default] unused: "perhaps" is neither true nor false`}},
		"unused key, blank":            {file: "[default]\nunused", want: "default", problems: []string{"f:2: [default] unused has no effect: not needed here"}},
		"boolean alias, blank":         {file: "[default]\nlocal", want: "local"},
		"boolean alias that is off":    {file: "[default]\nlocal=false", want: "default"},
		"unknown section":              {file: "[nowhere]\na=b", want: "default", problems: []string{"f:1: unknown section [nowhere]"}},
		"unknown key":                  {file: "[default]\nwhat=b", want: "default", problems: []string{"f:2: unknown key [default] what"}},
		"key of another section":       {file: "[default]\naddress=b", want: "default", problems: []string{"f:2: unknown key [default] address: it belongs to [ovnnorth]"}},
		"two mistakes in a line":       {file: "[ovnnorth]\naddress=\"\\q\\w", want: "default", problems: []string{"f:2: unknown escape sequence"}},
		"no value":                     {file: "[ovnnorth]\naddress", want: "default", problems: []string{"f:2: [ovnnorth] address: no value"}},
		"set again":                    {file: "[ovnnorth]\naddress=a\naddress=b", want: "b", problems: []string{"f:3: [ovnnorth] address is set again: line 2 has no effect"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := newSet()
			f := flag.NewFlagSet("", flag.ContinueOnError)
			s.Declare(f, 0)

			if err := f.Parse(tt.args); err != nil {
				t.Fatal(err)
			}

			from := Sources{Environment: func(name string) (string, bool) { return tt.env, name == "OVN_NB" && tt.env != "" }}
			if tt.ids != "" {
				from.ExternalIDs = map[string]string{"ovn-nb": tt.ids}
			}

			if tt.file != "" {
				file, err := Parse("f", []byte(tt.file))
				if err != nil {
					t.Fatal(err)
				}

				from.File = file
			}

			var problems []string
			for _, p := range s.Resolve(from) {
				problems = append(problems, p.String())
			}

			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}

			if v.v != tt.want {
				t.Errorf("value %q, want %q", v.v, tt.want)
			}

			given := map[string]string{}
			if len(tt.args) > 0 && !strings.Contains(tt.args[0], "unused") {
				given["ovn-nb"] = tt.want
			}

			if diff := cmp.Diff(given, s.Given()); diff != "" {
				t.Errorf("given (-want +got):\n%s", diff)
			}
		})
	}
}

// Overridden, disregarded and invalid values do not hide later ones.
func TestSkippedValuesHideNoOthers(t *testing.T) {
	flags := []string{"beaten", "apart", "wrong", "good"}
	values := map[string]*word{}

	var table Table

	for _, name := range flags {
		values[name] = &word{"default"}
		table.Settings = append(table.Settings, &Setting{Flag: name, Section: "s", Key: name, Value: values[name]})
	}

	for name, from := range map[string]Sources{
		"external_ids": {ExternalIDs: map[string]string{"ovn-ebpf-beaten": "x", "ovn-ebpf-apart": "x", "ovn-ebpf-wrong": "bad", "ovn-ebpf-good": "x"}},
		"environment": {Environment: func(name string) (string, bool) {
			v, ok := map[string]string{"OVNKUBE_BEATEN": "x", "OVNKUBE_WRONG": "bad", "OVNKUBE_GOOD": "x"}[name]
			return v, ok
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range values {
				v.v = "default"
			}

			s := New(table)
			s.Disregard("apart")

			f := flag.NewFlagSet("", flag.ContinueOnError)
			s.Declare(f, 0)

			if err := f.Parse([]string{"-beaten=flag"}); err != nil {
				t.Fatal(err)
			}

			if problems := s.Resolve(from); len(problems) != 1 || !strings.Contains(problems[0].Message, "wrong: ") {
				t.Errorf("problems %v, want one about wrong", problems)
			}

			got := map[string]string{}
			for name, v := range values {
				got[name] = v.v
			}

			if diff := cmp.Diff(map[string]string{"beaten": "flag", "apart": "default", "wrong": "default", "good": "x"}, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// A secret is not shown, but its absence is.
func TestSecretIsHidden(t *testing.T) {
	for _, tt := range []struct {
		value, want string
		secret      bool
	}{{"x", "x", false}, {"", "", false}, {"x", "(hidden)", true}, {"", "", true}} {
		if got := (&Setting{Value: &word{tt.value}, Secret: tt.secret}).Shown(); got != tt.want {
			t.Errorf("value %q, secret %t: shown as %q, want %q", tt.value, tt.secret, got, tt.want)
		}
	}
}
