package setting

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
)

// Setting is one thing that can be set.
type Setting struct {
	Flag         string // its name, and on the command line
	Section, Key string // in the file, lower case
	Env          string // environment variable beside the one that Variable returns; "": none
	ExternalID   string // key in OVS's external_ids beside the one that all have; "": none
	Value        flag.Value
	Usage        string
	Role         Role
	Secret       bool
	About        []string // words by which an error that is found later is known to be about it
}

// Role says whom a setting is for, a set of bits. 0 is everybody.
type Role uint8

// Variable returns the name of the environment variable that every setting has.
func (s *Setting) Variable() string {
	return "OVNKUBE_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// externalIDPrefix and the flag's name are the key of external_ids that every setting has.
const externalIDPrefix = "ovn-ebpf-"

// OwnExternalID says whether a key of external_ids is a setting's, and of nobody else.
func OwnExternalID(key string) bool { return strings.HasPrefix(key, externalIDPrefix) }

// ExternalIDKey returns the key of external_ids to keep the setting in.
func (s *Setting) ExternalIDKey() string { return cmp.Or(s.ExternalID, externalIDPrefix+s.Flag) }

// externalIDKeys are the keys of external_ids that the setting is read from, the most certain last.
func (s *Setting) externalIDKeys() []string {
	own := externalIDPrefix + s.Flag
	if s.ExternalID == "" {
		return []string{own}
	}
	return []string{s.ExternalID, own}
}

// Shown is the value as it may be printed.
func (s *Setting) Shown() string {
	if v := s.Value.String(); !s.Secret || v == "" {
		return v
	}
	return "(hidden)"
}

// Alias is another name, on the command line or in the file.
type Alias struct {
	Flag         string // "": none
	Section, Key string // "": none
	Deprecated   bool   // its use is a warning, which names For
	For          string // flag of the setting
	Bool         bool   // stands without a value on the command line

	// To says which settings get which values, nil: For gets the value.
	To func(value string) ([]Assignment, error)
}

// Assignment is a value for the setting with that flag.
type Assignment struct{ Flag, Value string }

// Unused is what operators of ovn-kubernetes know and we have no use for. Asking
// for it is a warning that says why; a false boolean asks for nothing.
type Unused struct {
	Flag, Section, Key string // Flag may be ""
	Bool               bool
	Why                string
}

// Table is all that can be set.
type Table struct {
	Settings []*Setting
	Aliases  []Alias
	Unused   []Unused
}

// byFlag finds a setting; a name that is not in the table is a mistake in the program.
func (t *Table) byFlag(name string) *Setting {
	for _, s := range t.Settings {
		if s.Flag == name {
			return s
		}
	}
	panic(fmt.Sprintf("setting %q is not in the table", name))
}

// assignments are what giving the alias a value means.
func (a Alias) assignments(value string) ([]Assignment, error) {
	if a.To == nil {
		return []Assignment{{a.For, value}}, nil
	}
	return a.To(value)
}

// Problem is a mistake or a warning, and where it is.
type Problem struct {
	Where   string `json:"where,omitempty"` // FILE:LINE, a flag, a variable; "": nowhere in particular
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

func (p Problem) String() string {
	if p.Where == "" {
		return p.Message
	}
	return p.Where + ": " + p.Message
}
