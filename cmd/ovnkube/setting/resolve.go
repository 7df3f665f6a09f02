package setting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Source is a source of values. Higher sources take precedence.
type Source int

// Sources of values, lowest first.
const (
	Default Source = iota
	ExternalIDs
	FromFile
	Environment
	CommandLine
)

func (s Source) String() string {
	return [...]string{"default", "external_ids", "file", "environment", "command line"}[s]
}

// Origin is the source of a setting's value, and its place there.
type Origin struct {
	Source Source
	Where  string // FILE:LINE, a flag, a variable, a key of external_ids
}

// Set is a table with the given values. It is not safe for concurrent use.
type Set struct {
	Table
	given map[*Setting]Origin
	notes []Problem       // warnings about the command line
	noted map[string]bool // flags with a note
	apart map[string]bool // settings that external_ids must not set
}

// New returns a Set with the defaults of all settings.
func New(t Table) *Set {
	return &Set{Table: t, given: map[*Setting]Origin{}, noted: map[string]bool{}, apart: map[string]bool{}}
}

// Origin returns the origin of a setting's value.
func (s *Set) Origin(name string) Origin { return s.given[s.byFlag(name)] }

// Given returns the values from the command line, by their keys in external_ids.
func (s *Set) Given() map[string]string {
	out := map[string]string{}

	for o, from := range s.given {
		if from.Source == CommandLine {
			out[o.ExternalIDKey()] = o.Value.String()
		}
	}

	return out
}

// Disregard makes Resolve ignore these settings in external_ids: a command that sets them together
// must not mix its values with those of an earlier command.
func (s *Set) Disregard(names ...string) {
	for _, name := range names {
		s.apart[s.byFlag(name).Flag] = true
	}
}

// Disregarded returns the keys of external_ids that Resolve ignores.
func (s *Set) Disregarded() []string {
	var out []string

	for _, o := range s.Settings {
		if s.apart[o.Flag] {
			out = append(out, o.externalIDKeys()...)
		}
	}

	return out
}

// Put sets a setting to a derived value.
func (s *Set) Put(name, value string, from Origin) error {
	o := s.byFlag(name)
	if err := o.Value.Set(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	s.given[o] = from

	return nil
}

// Sources are the inputs of Resolve besides the command line. Each may be nil.
type Sources struct {
	File        *File
	Environment func(name string) (string, bool)
	ExternalIDs map[string]string
}

// candidate is a source's value for a setting.
type candidate struct {
	setting *Setting
	value   string
	origin  Origin
}

// Resolve sets every setting that is not on the command line to the value of its highest source. It
// returns all mistakes and warnings, including those of the command line, in the order of sources
// and lines.
func (s *Set) Resolve(from Sources) []Problem {
	problems := slices.Clone(s.notes)

	var all []candidate
	if from.ExternalIDs != nil {
		all = append(all, s.externalIDs(from.ExternalIDs)...)
	}

	if from.File != nil {
		found, bad := s.file(from.File)
		all, problems = append(all, found...), append(problems, bad...)
	}

	if from.Environment != nil {
		all = append(all, s.environment(from.Environment)...)
	}

	// The winner comes last. Overridden values are checked as well: their mistakes would surface
	// later.
	for _, c := range all {
		if s.given[c.setting].Source > c.origin.Source {
			continue
		}

		if err := c.setting.Value.Set(c.value); err != nil {
			problems = append(problems,
				Problem{Where: c.origin.Where, Message: fmt.Sprintf("%s: %v", c.setting.Flag, err)})

			continue
		}

		s.given[c.setting] = c.origin
	}

	return problems
}

func (s *Set) externalIDs(ids map[string]string) []candidate {
	var out []candidate

	for _, o := range s.Settings {
		if s.apart[o.Flag] {
			continue
		}

		for _, key := range o.externalIDKeys() {
			if v := ids[key]; v != "" {
				out = append(out, candidate{o, v, Origin{ExternalIDs, "external_ids:" + key}})
			}
		}
	}

	return out
}

func (s *Set) environment(lookup func(string) (string, bool)) []candidate {
	var out []candidate

	for _, o := range s.Settings {
		for _, name := range []string{o.Env, o.Variable()} { // the program's own name is more specific
			if name == "" {
				continue
			}

			if v, ok := lookup(name); ok && v != "" {
				out = append(out, candidate{o, v, Origin{Environment, "$" + name}})
			}
		}
	}

	return out
}

// file returns the values of a file, and the problems with its keys.
func (s *Set) file(f *File) ([]candidate, []Problem) {
	problems := slices.Clone(f.Problems)
	warn := func(line int, format string, args ...any) {
		problems = append(problems,
			Problem{Where: f.where(line), Message: fmt.Sprintf(format, args...), Warning: true})
	}
	bad := func(line int, err error) {
		problems = append(problems, Problem{Where: f.where(line), Message: err.Error()})
	}

	for _, h := range f.Sections {
		if !slices.Contains(s.sections(), h.Section) {
			warn(h.Line, "unknown section [%s]", h.Section)
		}
	}

	var out []candidate

	seen := map[string]int{}

	for _, e := range f.Entries {
		k := s.key(e.Section, e.Key)
		name := "[" + e.Section + "] " + e.Key

		if first := seen[name]; first != 0 && k.known() {
			warn(e.Line, "%s is set again: line %d has no effect", name, first)
		}

		seen[name] = e.Line
		switch {
		case k.unused != nil:
			asks, err := k.unused.asks(e)
			if err != nil {
				bad(e.Line, fmt.Errorf("%s: %w", name, err))
			} else if asks {
				warn(e.Line, "%s has no effect: %s", name, k.unused.Why)
			}

			continue
		case !k.known():
			if slices.Contains(s.sections(), e.Section) { // otherwise the section was reported
				warn(e.Line, "unknown key %s%s", name, s.elsewhere(e.Key))
			}

			continue
		case e.Blank && !k.bool:
			bad(e.Line, fmt.Errorf("%s: no value", name))
			continue
		case e.Blank:
			e.Value = "true"
		}

		if k.deprecated != "" {
			warn(e.Line, "%s is deprecated, use %s", name, k.deprecated)
		}

		to, err := k.to(e.Value)
		if err != nil {
			bad(e.Line, fmt.Errorf("%s: %w", name, err))
			continue
		}

		for _, a := range to {
			out = append(out, candidate{s.byFlag(a.Flag), a.Value, Origin{FromFile, f.where(e.Line)}})
		}
	}

	return out, problems
}

// meaning is the meaning of a file's key; the zero value is an unknown key.
type meaning struct {
	unused     *UnusedName
	to         func(string) ([]Assignment, error)
	bool       bool
	deprecated string // the key to use
}

func (m meaning) known() bool { return m.to != nil || m.unused != nil }

func (s *Set) key(section, key string) meaning {
	for _, o := range s.Settings {
		if o.Section == section && o.Key == key {
			return meaning{
				to:   func(v string) ([]Assignment, error) { return []Assignment{{o.Flag, v}}, nil },
				bool: isBool(o.Value),
			}
		}
	}

	for _, a := range s.Aliases {
		if a.Section == section && a.Key == key {
			m := meaning{to: a.assignments, bool: a.Bool}
			if o := s.byFlag(a.For); a.Deprecated {
				m.deprecated = "[" + o.Section + "] " + o.Key
			}

			return m
		}
	}

	for i := range s.UnusedNames {
		if u := &s.UnusedNames[i]; u.Section == section && u.Key == key {
			return meaning{unused: u}
		}
	}

	return meaning{}
}

// asks reports whether an entry enables an unsupported feature.
func (u *UnusedName) asks(e Entry) (bool, error) {
	if !u.Bool {
		return e.Value != "", nil
	}

	if e.Blank {
		return true, nil
	}

	return parseBool(e.Value)
}

func (s *Set) sections() []string {
	all := map[string]bool{}
	for _, o := range s.Settings {
		all[o.Section] = true
	}

	for _, a := range s.Aliases {
		all[a.Section] = true
	}

	for _, u := range s.UnusedNames {
		all[u.Section] = true
	}

	delete(all, "")

	return slices.Sorted(maps.Keys(all))
}

// elsewhere returns a hint at the sections that have the key.
func (s *Set) elsewhere(key string) string {
	var in []string

	for _, section := range s.sections() {
		if s.key(section, key).known() {
			in = append(in, "["+section+"]")
		}
	}

	if in == nil {
		return ""
	}

	return ": it belongs to " + strings.Join(in, " or ")
}
