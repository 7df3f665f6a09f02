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

// Set is a table whose settings have values, with the origins of the values. It is not safe for
// concurrent use.
type Set struct {
	Table
	origins     map[*Setting]Origin // of values that were set; a value without one is the table's default
	notes       []Problem           // warnings about the command line
	hasNote     map[string]bool     // flags with a note
	disregarded map[string]bool     // flags of settings that external_ids must not set
}

// New returns a Set with the defaults of all settings.
func New(t Table) *Set {
	return &Set{
		Table:       t,
		origins:     map[*Setting]Origin{},
		hasNote:     map[string]bool{},
		disregarded: map[string]bool{},
	}
}

// Origin returns the origin of a setting's value.
func (s *Set) Origin(name string) Origin { return s.origins[s.byFlag(name)] }

// Given returns the values from the command line, by their keys in external_ids.
func (s *Set) Given() map[string]string {
	out := map[string]string{}

	for o, from := range s.origins {
		if from.Source == CommandLine {
			out[o.ExternalIDKey()] = o.Value.String()
		}
	}

	return out
}

// Disregard makes Resolve ignore these settings in external_ids. A command that sets them together
// needs it, because its values must not be mixed with those of an earlier command.
func (s *Set) Disregard(names ...string) {
	for _, name := range names {
		s.disregarded[s.byFlag(name).Flag] = true
	}
}

// Disregarded returns the keys of external_ids that Resolve ignores.
func (s *Set) Disregarded() []string {
	var out []string

	for _, o := range s.Settings {
		if s.disregarded[o.Flag] {
			out = append(out, o.externalIDKeys()...)
		}
	}

	return out
}

// Put sets a setting to a derived value. An origin with the source Default is that of a default
// which depends on other settings.
func (s *Set) Put(name, value string, from Origin) error {
	o := s.byFlag(name)
	if err := o.Value.Set(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	s.origins[o] = from

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
		all = append(all, found...)
		problems = append(problems, bad...)
	}

	if from.Environment != nil {
		all = append(all, s.environment(from.Environment)...)
	}

	// Higher sources are later, so that the last value remains. Values that later ones replace are
	// set as well, because Set checks them: the mistakes would surface when the higher source has
	// no value.
	for _, c := range all {
		if s.origins[c.setting].Source > c.origin.Source {
			continue
		}

		if err := c.setting.Value.Set(c.value); err != nil {
			problems = append(problems,
				Problem{Where: c.origin.Where, Message: fmt.Sprintf("%s: %v", c.setting.Flag, err)})

			continue
		}

		s.origins[c.setting] = c.origin
	}

	return problems
}

// externalIDs returns the values in external_ids. A setting's own key is after the general one, and
// so wins.
func (s *Set) externalIDs(ids map[string]string) []candidate {
	var out []candidate

	for _, o := range s.Settings {
		if s.disregarded[o.Flag] {
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

// environment returns the values of environment variables. A setting's own variable is after the
// general one, and so wins.
func (s *Set) environment(lookup func(string) (string, bool)) []candidate {
	var out []candidate

	for _, o := range s.Settings {
		for _, name := range []string{o.Env, o.Variable()} {
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

// file returns the values of a file, and the problems with its sections and keys.
func (s *Set) file(f *File) ([]candidate, []Problem) {
	r := fileReader{set: s, file: f, problems: slices.Clone(f.Problems)}

	for _, header := range f.Sections {
		if !slices.Contains(s.sections(), header.Section) {
			r.warn(header, "unknown section [%s]", header.Section)
		}
	}

	lines := map[string]int{} // of keys, with their section

	for _, e := range f.Entries {
		if earlier := lines[e.name()]; earlier != 0 && s.key(e.Section, e.Key).isKnown() {
			r.warn(e, "%s is set again: line %d has no effect", e.name(), earlier)
		}

		lines[e.name()] = e.Line
		r.read(e)
	}

	return r.found, r.problems
}

// fileReader collects the values of a file, and the problems with its keys. A key is that of a
// setting, of an alias, of an unused name, or unknown (fileKey).
type fileReader struct {
	set      *Set
	file     *File
	found    []candidate
	problems []Problem
}

func (r *fileReader) warn(e Entry, format string, args ...any) {
	r.problems = append(r.problems,
		Problem{Where: r.file.where(e.Line), Message: fmt.Sprintf(format, args...), Warning: true})
}

func (r *fileReader) fail(e Entry, format string, args ...any) {
	r.problems = append(r.problems, Problem{Where: r.file.where(e.Line), Message: fmt.Sprintf(format, args...)})
}

// read adds the values of an entry, or the problem with it.
func (r *fileReader) read(e Entry) {
	key := r.set.key(e.Section, e.Key)

	switch {
	case key.unused != nil:
		r.readUnused(e, key.unused)
		return
	case !key.isKnown():
		if slices.Contains(r.set.sections(), e.Section) { // otherwise the section is reported
			r.warn(e, "unknown key %s%s", e.name(), r.set.hintSections(e.Key))
		}

		return
	case e.Blank && !key.isBool:
		r.fail(e, "%s: no value", e.name())
		return
	case e.Blank:
		e.Value = "true"
	}

	if key.replacement != "" {
		r.warn(e, "%s is deprecated, use %s", e.name(), key.replacement)
	}

	assignments, err := key.assignments(e.Value)
	if err != nil {
		r.fail(e, "%s: %v", e.name(), err)
		return
	}

	for _, a := range assignments {
		origin := Origin{FromFile, r.file.where(e.Line)}
		r.found = append(r.found, candidate{r.set.byFlag(a.Flag), a.Value, origin})
	}
}

func (r *fileReader) readUnused(e Entry, u *UnusedName) {
	isUsed, err := u.isUsed(e)

	switch {
	case err != nil:
		r.fail(e, "%s: %v", e.name(), err)
	case isUsed:
		r.warn(e, "%s has no effect: %s", e.name(), u.Why)
	}
}

// isUsed reports whether an entry, or a flag, has a value that would enable something.
func (u *UnusedName) isUsed(e Entry) (bool, error) {
	if !u.Bool {
		return e.Value != "", nil
	}

	if e.Blank {
		return true, nil
	}

	return parseBool(e.Value)
}

// fileKey is the meaning of a key in a file; the zero value is an unknown key.
type fileKey struct {
	unused      *UnusedName
	assignments func(value string) ([]Assignment, error) // nil if the key is unused or unknown
	isBool      bool                                     // needs no value
	replacement string                                   // of a deprecated key: the key to use
}

func (k fileKey) isKnown() bool { return k.assignments != nil || k.unused != nil }

// key looks up a key in the table.
func (s *Set) key(section, key string) fileKey {
	for _, o := range s.Settings {
		if o.Section == section && o.Key == key {
			return fileKey{
				assignments: func(v string) ([]Assignment, error) { return []Assignment{{o.Flag, v}}, nil },
				isBool:      isBool(o.Value),
			}
		}
	}

	for _, a := range s.Aliases {
		if a.Section == section && a.Key == key {
			k := fileKey{assignments: a.assignments, isBool: a.Bool}
			if o := s.byFlag(a.For); a.Deprecated {
				k.replacement = "[" + o.Section + "] " + o.Key
			}

			return k
		}
	}

	for i := range s.UnusedNames {
		if u := &s.UnusedNames[i]; u.Section == section && u.Key == key {
			return fileKey{unused: u}
		}
	}

	return fileKey{}
}

// sections returns all sections in which the table has keys.
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

	delete(all, "") // of names that are only flags

	return slices.Sorted(maps.Keys(all))
}

// hintSections returns a hint at the sections that have the key; "" if none has it.
func (s *Set) hintSections(key string) string {
	var sections []string

	for _, section := range s.sections() {
		if s.key(section, key).isKnown() {
			sections = append(sections, "["+section+"]")
		}
	}

	if sections == nil {
		return ""
	}

	return ": it belongs to " + strings.Join(sections, " or ")
}
