package setting

import (
	"errors"
	"flag"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	first Role = 1 << iota
	second
)

// Each role has flags for its own settings, the common ones, their aliases and the unused names.
func TestRoleHasItsFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		role Role
		want []string
	}{
		"one role":     {first, []string{"all", "both", "first", "old-all", "old-first", "unused"}},
		"another role": {second, []string{"all", "both", "old-all", "second", "old-second", "unused"}},
		"both roles":   {first | second, []string{"all", "both", "first", "old-all", "old-first", "old-second", "second", "unused"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Table{
				Settings: []*Setting{
					{Flag: "first", Role: first, Value: &word{}},
					{Flag: "second", Role: second, Value: &word{}},
					{Flag: "both", Role: first | second, Value: &word{}},
					{Flag: "all", Value: &word{}},
				},
				Aliases: []Alias{ // excluded ones come first
					{Section: "file", Key: "alone", For: "first"},
					{Flag: "old-first", For: "first"},
					{Flag: "old-second", For: "second"},
					{Flag: "old-all", For: "all"},
				},
				UnusedNames: []UnusedName{{Section: "file", Key: "nothing", Why: "why"}, {Flag: "unused", Why: "why"}},
			})
			f := flag.NewFlagSet("", flag.ContinueOnError)
			s.Declare(f, tt.role)

			got := map[string]bool{}

			f.VisitAll(func(o *flag.Flag) { got[o.Name] = true })

			want := map[string]bool{}
			for _, name := range tt.want {
				want[name] = true
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}

// Only settings show a value, and package flag may call String on a zero value.
func TestShownDefault(t *testing.T) {
	s, _ := newSet()
	f := flag.NewFlagSet("", flag.ContinueOnError)
	s.Declare(f, 0)

	for name, want := range map[string]string{"nb-address": "default", "old": "", "unused": ""} {
		if got := f.Lookup(name).DefValue; got != want {
			t.Errorf("-%s: default %q, want %q", name, got, want)
		}
	}

	for _, zero := range []*recordedFlag{nil, {}} {
		if got := zero.String(); got != "" {
			t.Errorf("%v shows %q", zero, got)
		}
	}
}

// An invalid value is the flag's error and leaves the setting unchanged.
func TestInvalidFlagLeavesSetting(t *testing.T) {
	s, v := newSet()
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.Declare(f, 0)

	if err := f.Parse([]string{"-old=bad"}); err == nil || v.v != "default" {
		t.Errorf("%v, value %q", err, v.v)
	}

	if got := s.Origin("nb-address"); got != (Origin{}) {
		t.Errorf("its origin is %v", got)
	}

	if err := f.Lookup("old").Value.Set("bad"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the value's own error is lost: %v", err)
	}
}
