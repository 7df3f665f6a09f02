package setting

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Source is where a value comes from. A higher one wins.
type Source int

// The sources.
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

// Origin is the source of a setting's value, and the place in it.
type Origin struct {
	Source Source
	Where  string // FILE:LINE, a flag, a variable, a key of external_ids
}

// Set is a table with what has been given. It is not safe for concurrent use.
type Set struct {
	Table
	given map[*Setting]Origin
	notes []Problem       // what the command line has to be warned of
	noted map[string]bool // the flags of notes
	apart map[string]bool // settings that external_ids does not give
}

// New returns a Set in which every setting has its default.
func New(t Table) *Set {
	return &Set{Table: t, given: map[*Setting]Origin{}, noted: map[string]bool{}, apart: map[string]bool{}}
}

// Origin says where a setting's value is from.
func (s *Set) Origin(name string) Origin { return s.given[s.byFlag(name)] }

// Given returns the values that the command line gave, by the key of external_ids that
// keeps them.
func (s *Set) Given() map[string]string {
	out := map[string]string{}
	for o, from := range s.given {
		if from.Source == CommandLine {
			out[o.ExternalIDKey()] = o.Value.String()
		}
	}
	return out
}

// Disregard makes Resolve leave out what external_ids has of these settings: a command that
// sets them as a whole must not mix its own with those of an earlier command.
func (s *Set) Disregard(names ...string) {
	for _, name := range names {
		s.apart[s.byFlag(name).Flag] = true
	}
}

// Disregarded returns the keys of external_ids that Resolve leaves out.
func (s *Set) Disregarded() []string {
	var out []string
	for _, o := range s.Settings {
		if s.apart[o.Flag] {
			out = append(out, o.externalIDKeys()...)
		}
	}
	return out
}

// Put gives a setting a value that follows from others.
func (s *Set) Put(name, value string, from Origin) error {
	o := s.byFlag(name)
	if err := o.Value.Set(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.given[o] = from
	return nil
}

// Sources are what Resolve reads beside the command line. Each may be nil.
type Sources struct {
	File        *File
	Environment func(name string) (string, bool)
	ExternalIDs map[string]string
}

// candidate is a value that a source has for a setting.
type candidate struct {
	setting *Setting
	value   string
	origin  Origin
}

// Resolve gives every setting that the command line has not given the value of
// the highest source that has one. It returns all mistakes and warnings, those
// of the command line too, in the order of sources and lines.
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
	// The winner comes last. What loses against another source is looked at all
	// the same: it would be a surprise later.
	for _, c := range all {
		if s.given[c.setting].Source > c.origin.Source {
			continue
		}
		if err := c.setting.Value.Set(c.value); err != nil {
			problems = append(problems, Problem{Where: c.origin.Where, Message: fmt.Sprintf("%s: %v", c.setting.Flag, err)})
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
		for _, name := range []string{o.Env, o.Variable()} { // our own name is the more certain
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

// file returns what a file sets, and what is wrong with its keys.
func (s *Set) file(f *File) ([]candidate, []Problem) {
	problems := slices.Clone(f.Problems)
	warn := func(line int, format string, args ...any) {
		problems = append(problems, Problem{Where: f.where(line), Message: fmt.Sprintf(format, args...), Warning: true})
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
			if slices.Contains(s.sections(), e.Section) { // else the section has been named
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

// meaning is what a key of the file means; its zero value is an unknown key.
type meaning struct {
	unused     *Unused
	to         func(string) ([]Assignment, error)
	bool       bool
	deprecated string // the key to use
}

func (m meaning) known() bool { return m.to != nil || m.unused != nil }

func (s *Set) key(section, key string) meaning {
	for _, o := range s.Settings {
		if o.Section == section && o.Key == key {
			return meaning{to: func(v string) ([]Assignment, error) { return []Assignment{{o.Flag, v}}, nil }, bool: isBool(o.Value)}
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
	for i := range s.Unused {
		if u := &s.Unused[i]; u.Section == section && u.Key == key {
			return meaning{unused: u}
		}
	}
	return meaning{}
}

// asks reports whether an entry asks for what we have no use for.
func (u *Unused) asks(e Entry) (bool, error) {
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
	for _, u := range s.Unused {
		all[u.Section] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// elsewhere says in which section a key would be known.
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
