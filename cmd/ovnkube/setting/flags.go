package setting

import "flag"

// Declare declares flags for the settings of a role, their aliases and the unused flags. Only
// settings have a usage text.
func (s *Set) Declare(f *flag.FlagSet, role Role) {
	of := func(o *Setting) bool { return o.Role == 0 || o.Role&role != 0 }
	for _, o := range s.Settings {
		if of(o) {
			s.declare(f, o, true)
		}
	}

	for _, a := range s.Aliases {
		if a.Flag == "" || !of(s.byFlag(a.For)) {
			continue
		}

		f.Var(&recordedFlag{bool: a.Bool, shared: true, set: func(v string) error {
			if a.Deprecated {
				s.note("-"+a.Flag, "deprecated, use -"+a.For)
			}

			to, err := a.assignments(v)
			if err != nil {
				return err
			}

			return s.give("-"+a.Flag, to)
		}}, a.Flag, "")
	}

	for _, u := range s.UnusedNames {
		if u.Flag == "" {
			continue
		}

		f.Var(&recordedFlag{bool: u.Bool, shared: true, set: func(v string) error {
			asks, err := u.asks(Entry{Value: v})
			if err == nil && asks {
				s.note("-"+u.Flag, "no effect: "+u.Why)
			}

			return err
		}}, u.Flag, "")
	}
}

func (s *Set) give(flag string, to []Assignment) error {
	for _, a := range to {
		o := s.byFlag(a.Flag)
		if err := o.Value.Set(a.Value); err != nil {
			return err
		}

		s.given[o] = Origin{CommandLine, flag}
	}

	return nil
}

// note records one warning per flag.
func (s *Set) note(flag, message string) {
	if !s.noted[flag] {
		s.noted[flag] = true
		s.notes = append(s.notes, Problem{Where: flag, Message: message, Warning: true})
	}
}

// recordedFlag is a flag that records that it was given.
type recordedFlag struct {
	get    func() string // nil: no value
	set    func(string) error
	bool   bool
	shared bool // declared by Declare, which gives a command all settings of a role
}

// Shared reports whether Declare has declared the flag with this value: a setting of a role, an
// alias or an unused flag. Other flags belong to one command.
func Shared(v any) bool {
	g, ok := v.(*recordedFlag)
	return ok && g.shared
}

func (g *recordedFlag) String() string {
	if g == nil || g.get == nil {
		return ""
	}

	return g.get()
}

func (g *recordedFlag) Set(v string) error { return g.set(v) }

func (g *recordedFlag) IsBoolFlag() bool { return g.bool }

// Type is for pflag, which uses it to format a flag.
func (g *recordedFlag) Type() string {
	if g.bool {
		return "bool"
	}

	return "value"
}

// When returns an Alias.To for a boolean that sets a setting to value if it is on, or if want is
// false, when it is off. Otherwise it sets nothing.
func When(want bool, name, value string) func(string) ([]Assignment, error) {
	return func(v string) ([]Assignment, error) {
		if is, err := parseBool(v); err != nil || is != want {
			return nil, err
		}

		return []Assignment{{name, value}}, nil
	}
}

// DeclareSome declares flags for the settings with these names.
func (s *Set) DeclareSome(f *flag.FlagSet, names ...string) {
	for _, name := range names {
		s.declare(f, s.byFlag(name), false)
	}
}

func (s *Set) declare(f *flag.FlagSet, o *Setting, shared bool) {
	f.Var(&recordedFlag{
		get: o.Value.String, bool: isBool(o.Value), shared: shared,
		set: func(v string) error { return s.give("-"+o.Flag, []Assignment{{o.Flag, v}}) },
	}, o.Flag, o.Usage)
}
