package setting

import "flag"

// Declare declares flags for the settings of a role, for their aliases, and for all unused names.
// Only the flags of settings have a usage text.
func (s *Set) Declare(f *flag.FlagSet, role Role) {
	hasRole := func(o *Setting) bool { return o.Role == 0 || o.Role&role != 0 }

	for _, o := range s.Settings {
		if hasRole(o) {
			s.declare(f, o, true)
		}
	}

	for _, a := range s.Aliases {
		if a.Flag != "" && hasRole(s.byFlag(a.For)) {
			s.declareAlias(f, a)
		}
	}

	for _, u := range s.UnusedNames {
		if u.Flag != "" {
			s.declareUnused(f, u)
		}
	}
}

// DeclareSome declares flags for the settings with these names, without aliases.
func (s *Set) DeclareSome(f *flag.FlagSet, names ...string) {
	for _, name := range names {
		s.declare(f, s.byFlag(name), false)
	}
}

func (s *Set) declare(f *flag.FlagSet, o *Setting, isShared bool) {
	f.Var(&recordedFlag{
		get: o.Value.String, isBool: isBool(o.Value), isShared: isShared,
		set: func(v string) error { return s.assign("-"+o.Flag, []Assignment{{o.Flag, v}}) },
	}, o.Flag, o.Usage)
}

func (s *Set) declareAlias(f *flag.FlagSet, a Alias) {
	set := func(v string) error {
		if a.Deprecated {
			s.note("-"+a.Flag, "deprecated, use -"+a.For)
		}

		assignments, err := a.assignments(v)
		if err != nil {
			return err
		}

		return s.assign("-"+a.Flag, assignments)
	}

	f.Var(&recordedFlag{isBool: a.Bool, isShared: true, set: set}, a.Flag, "")
}

func (s *Set) declareUnused(f *flag.FlagSet, u UnusedName) {
	set := func(v string) error {
		isUsed, err := u.isUsed(Entry{Value: v})
		if err == nil && isUsed {
			s.note("-"+u.Flag, "no effect: "+u.Why)
		}

		return err
	}

	f.Var(&recordedFlag{isBool: u.Bool, isShared: true, set: set}, u.Flag, "")
}

// assign sets settings to the values that a flag stands for.
func (s *Set) assign(flag string, assignments []Assignment) error {
	for _, a := range assignments {
		o := s.byFlag(a.Flag)
		if err := o.Value.Set(a.Value); err != nil {
			return err
		}

		s.origins[o] = Origin{CommandLine, flag}
	}

	return nil
}

// note records a warning about a flag, once if the flag is repeated.
func (s *Set) note(flag, message string) {
	if !s.hasNote[flag] {
		s.hasNote[flag] = true
		s.notes = append(s.notes, Problem{Where: flag, Message: message, Warning: true})
	}
}

// recordedFlag is the value of a flag. Its set function records where the value is from.
type recordedFlag struct {
	get      func() string // nil: the flag shows no value
	set      func(string) error
	isBool   bool // needs no value
	isShared bool // declared by Declare, which gives a command all settings of a role
}

// Shared reports whether Declare has declared the flag with this value: a setting of a role, an
// alias or an unused flag. Other flags belong to one command.
func Shared(v any) bool {
	g, isRecorded := v.(*recordedFlag)
	return isRecorded && g.isShared
}

// String is also called on a zero value, by package flag.
func (g *recordedFlag) String() string {
	if g == nil || g.get == nil {
		return ""
	}

	return g.get()
}

func (g *recordedFlag) Set(v string) error { return g.set(v) }

// IsBoolFlag is for package flag: whether the flag needs no value.
func (g *recordedFlag) IsBoolFlag() bool { return g.isBool }

// Type is for pflag, which uses it to format a flag.
func (g *recordedFlag) Type() string {
	if g.isBool {
		return "bool"
	}

	return "value"
}

// When returns an Alias.To for a boolean alias. If the alias has the value condition, the setting
// with this name gets the value. Otherwise the alias has no effect.
func When(condition bool, name, value string) func(string) ([]Assignment, error) {
	return func(v string) ([]Assignment, error) {
		if on, err := parseBool(v); err != nil || on != condition {
			return nil, err
		}

		return []Assignment{{name, value}}, nil
	}
}
