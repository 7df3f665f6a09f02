package setting

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
)

// Setting is one configurable value. For example, the setting with the flag mtu in the section
// default is --mtu, $OVNKUBE_MTU, the key mtu below [default] in the file, and
// external_ids:ovn-ebpf-mtu.
type Setting struct {
	Flag         string // its name, also on the command line
	Section, Key string // in the file, lower case
	Env          string // additional environment variable besides Variable; "": none
	ExternalID   string // additional key in OVS's external_ids; "": none
	Value        flag.Value
	Usage        string
	Role         Role     // the roles that have the setting; 0: all
	Secret       bool     // the value is not printed
	About        []string // an error of a later check is about this setting if it has one of these texts
}

// Role is a bit set of roles of the program.
type Role uint8

// Variable returns the name of the setting's environment variable.
func (s *Setting) Variable() string {
	return "OVNKUBE_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// externalIDPrefix and the name of the flag form the setting's own key in external_ids.
const externalIDPrefix = "ovn-ebpf-"

// OwnExternalID reports whether a key of external_ids belongs to ovn-ebpf alone.
func OwnExternalID(key string) bool { return strings.HasPrefix(key, externalIDPrefix) }

// ExternalIDKey returns the key of external_ids in which a command stores the setting: the one that
// other programs read as well, if there is one.
func (s *Setting) ExternalIDKey() string { return cmp.Or(s.ExternalID, externalIDPrefix+s.Flag) }

// externalIDKeys returns the setting's keys in external_ids, the most specific last.
func (s *Setting) externalIDKeys() []string {
	own := externalIDPrefix + s.Flag
	if s.ExternalID == "" {
		return []string{own}
	}

	return []string{s.ExternalID, own}
}

// Shown returns the value for printing.
func (s *Setting) Shown() string {
	v := s.Value.String()
	if s.Secret && v != "" {
		return "(hidden)"
	}

	return v
}

// Alias is another name of a setting, on the command line, in the file, or both.
type Alias struct {
	Flag         string // "": none
	Section, Key string // "": none
	Deprecated   bool   // its use causes a warning that names For
	For          string // flag of the setting
	Bool         bool   // needs no value on the command line

	// To returns the values that settings get if the alias has a value. nil: the setting For gets the
	// value unchanged.
	To func(value string) ([]Assignment, error)
}

// Assignment is a value for the setting with that flag.
type Assignment struct{ Flag, Value string }

// UnusedName is a name of ovn-kubernetes without a meaning here. Its use causes a warning with the
// reason; a false boolean does not count as use.
type UnusedName struct {
	Flag, Section, Key string // Flag may be ""
	Bool               bool
	Why                string
}

// Table lists the settings of a program and the other names that it accepts.
type Table struct {
	Settings    []*Setting
	Aliases     []Alias
	UnusedNames []UnusedName
}

// byFlag returns a setting; an unknown name is a programming error.
func (t *Table) byFlag(name string) *Setting {
	for _, s := range t.Settings {
		if s.Flag == name {
			return s
		}
	}

	panic(fmt.Sprintf("setting %q is not in the table", name))
}

// assignments returns the settings that the alias assigns for a value.
func (a Alias) assignments(value string) ([]Assignment, error) {
	if a.To == nil {
		return []Assignment{{a.For, value}}, nil
	}

	return a.To(value)
}

// Problem is a mistake or a warning, with its place.
type Problem struct {
	Where   string `json:"where,omitempty"` // FILE:LINE, a flag, a variable; "": no particular place
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

func (p Problem) String() string {
	if p.Where == "" {
		return p.Message
	}

	return p.Where + ": " + p.Message
}
