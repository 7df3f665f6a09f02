package daemon

import (
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
)

// RunDir and LogDir are where files go whose path is not given, OVS's own directories.
const (
	RunDir = "/var/run/openvswitch"
	LogDir = "/var/log/openvswitch"
)

// Options are what the command line asks for. Declare sets them.
type Options struct {
	Name      string // of the program: ovn-k8s-watcher
	PIDFile   string // "" for none
	Overwrite bool
	Detach    bool
	NoChdir   bool
	LogFile   string // "" for none
	Verbosity
}

// Declare makes the flags of a daemon called name.
func (o *Options) Declare(f *flag.FlagSet, name string) {
	o.Name = name
	f.Var(optional{&o.PIDFile, filepath.Join(RunDir, name+".pid")}, "pidfile", "write the process's number to `[FILE]`; without one, to "+filepath.Join(RunDir, name+".pid")+". Refused while the process named there lives")
	f.BoolVar(&o.Overwrite, "overwrite-pidfile", false, "start although a process that lives has the pid file")
	f.BoolVar(&o.Detach, "detach", false, "go to the background; the command returns when the daemon is up, or says why it is not")
	f.BoolVar(&o.NoChdir, "no-chdir", false, "with --detach: stay in this directory, not in /")
}

// DeclareLog makes the flags of OVS's logging. A program of the second generation has others.
func (o *Options) DeclareLog(f *flag.FlagSet) {
	f.Var(optional{&o.LogFile, filepath.Join(LogDir, o.Name+".log")}, "log-file", "append the log to `[FILE]`; without one, to "+filepath.Join(LogDir, o.Name+".log"))
	f.Var(&o.Verbosity, "verbose", "`[MODULE:][DESTINATION:]LEVEL`: what goes to the destinations console and file, off, emer, err, warn, info or dbg; -vfile:info is the same. There is one module")
}

// optional is a string flag that may stand without a value, as in --pidfile.
type optional struct {
	to   *string
	dflt string
}

func (o optional) IsBoolFlag() bool { return true }

// Type is pflag's: without a value it is shown as a switch is.
func (o optional) Type() string { return "bool" }

func (o optional) String() string {
	if o.to == nil {
		return ""
	}
	return *o.to
}

func (o optional) Set(v string) error {
	switch v {
	case "true":
		v = o.dflt
	case "":
		return fmt.Errorf("no file named")
	}
	*o.to = v
	return nil
}

// Verbosity is how much goes to each destination, as OVS's -v says it. The zero
// value leaves it as it is. It is a flag.Value.
type Verbosity struct {
	Console, File *slog.Level // nil: not said
	said          []string
}

// Off is above every level there is.
const Off = slog.Level(100)

// levels are OVS's; an emergency is what nothing here logs.
var levels = map[string]slog.Level{
	"off": Off, "emer": Off, "err": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "dbg": slog.LevelDebug,
}

var destinations = []string{"any", "console", "file", "syslog"}

func separator(r rune) bool { return strings.ContainsRune(":, \t", r) }

// IsBoolFlag: --verbose alone is everything.
func (*Verbosity) IsBoolFlag() bool { return true }

// Type is pflag's: without a value it is shown as a switch is.
func (*Verbosity) Type() string { return "bool" }

func (v *Verbosity) String() string {
	if v == nil {
		return ""
	}
	return strings.Join(v.said, " ")
}

// Set takes words in any order: a destination, a level (dbg if there is none), a
// module, of which any is the only one. What is said later wins.
func (v *Verbosity) Set(spec string) error {
	if spec == "true" {
		spec = "dbg"
	}
	to, level := "any", slog.LevelDebug
	var haveTo, haveLevel bool
	for _, word := range strings.FieldsFunc(strings.ToLower(spec), separator) {
		l, isLevel := levels[word]
		switch {
		case isLevel && !haveLevel:
			level, haveLevel = l, true
		case word == "any":
		case slices.Contains(destinations, word) && !haveTo:
			to, haveTo = word, true
		default:
			return fmt.Errorf("%q: %q is no level (off, emer, err, warn, info, dbg) and no destination (console, file, syslog)", spec, word)
		}
	}
	if to == "any" || to == "console" {
		v.Console = &level
	}
	if to == "any" || to == "file" {
		v.File = &level
	}
	v.said = append(v.said, spec)
	return nil
}
