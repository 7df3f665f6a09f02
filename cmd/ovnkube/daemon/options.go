package daemon

import (
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
)

// RunDir and LogDir are the default directories, those of OVS.
const (
	RunDir = "/var/run/openvswitch"
	LogDir = "/var/log/openvswitch"
)

// Options are the daemon options of the command line. Declare and DeclareLog declare their flags.
type Options struct {
	Name      string // of the program, as in ovn-k8s-watcher
	PIDFile   string // "": none
	Overwrite bool   // of a pid file that a living process has
	Detach    bool   // run in the background
	NoChdir   bool   // in the background, stay in the working directory instead of /
	LogFile   string // "": none
	Verbosity
}

// Declare declares the flags of a daemon called name.
func (o *Options) Declare(f *flag.FlagSet, name string) {
	o.Name = name
	file := filepath.Join(RunDir, name+".pid")
	f.Var(optional{&o.PIDFile, file}, "pidfile",
		"write the process's number to `[FILE]`; without one, to "+file+". Refused while the process named there lives")
	f.BoolVar(&o.Overwrite, "overwrite-pidfile", false,
		"start although a process that lives has the pid file")
	f.BoolVar(&o.Detach, "detach", false,
		"go to the background; the command returns when the daemon is up, or with the error")
	f.BoolVar(&o.NoChdir, "no-chdir", false, "with --detach: stay in this directory, not in /")
}

// DeclareLog declares OVS's logging flags, for the daemons of ovn-kubernetes' first releases. Other
// commands have the settings of the log.
func (o *Options) DeclareLog(f *flag.FlagSet) {
	file := filepath.Join(LogDir, o.Name+".log")
	f.Var(optional{&o.LogFile, file}, "log-file", "append the log to `[FILE]`; without one, to "+file)
	f.Var(&o.Verbosity, "verbose",
		"`[MODULE:][DESTINATION:]LEVEL`: what goes to the destinations console and file, off, emer, err, warn, info or dbg; -vfile:info is the same. There is one module")
}

// optional is a string flag with an optional value, such as --pidfile.
type optional struct {
	to           *string
	defaultValue string // without a value on the command line
}

func (o optional) IsBoolFlag() bool { return true }

// Type is for pflag: a flag without a value is shown like a switch.
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
		v = o.defaultValue
	case "":
		return fmt.Errorf("empty file name")
	}

	*o.to = v

	return nil
}

// Verbosity is the log level per destination, in the syntax of OVS's -v. The zero value changes no
// level. It is a flag.Value.
type Verbosity struct {
	Console, File *slog.Level // nil: unchanged
	specs         []string    // as on the command line
}

// Off is above every level.
const Off = slog.Level(100)

// levels are OVS's level names. The level emer has no messages here.
var levels = map[string]slog.Level{
	"off":  Off,
	"emer": Off,
	"err":  slog.LevelError,
	"warn": slog.LevelWarn,
	"info": slog.LevelInfo,
	"dbg":  slog.LevelDebug,
}

// destinations are OVS's. A level for syslog has no effect.
var destinations = []string{"any", "console", "file", "syslog"}

// isSeparator reports whether a character separates the words of a -v.
func isSeparator(r rune) bool { return strings.ContainsRune(":, \t", r) }

// IsBoolFlag allows --verbose without a value, which enables all messages.
func (*Verbosity) IsBoolFlag() bool { return true }

// Type is for pflag: a flag without a value is shown like a switch.
func (*Verbosity) Type() string { return "bool" }

func (v *Verbosity) String() string {
	if v == nil {
		return ""
	}

	return strings.Join(v.specs, " ")
}

// Set accepts words in any order: a destination, a level (default dbg), and a module (only "any").
// The last value for a destination wins.
func (v *Verbosity) Set(spec string) error {
	if spec == "true" { // the flag has no value
		spec = "dbg"
	}

	destination, level := "any", slog.LevelDebug
	hasDestination, hasLevel := false, false

	for _, word := range strings.FieldsFunc(strings.ToLower(spec), isSeparator) {
		l, isLevel := levels[word]
		switch {
		case isLevel && !hasLevel:
			level, hasLevel = l, true
		case word == "any": // any module or destination
		case slices.Contains(destinations, word) && !hasDestination:
			destination, hasDestination = word, true
		default:
			return fmt.Errorf("%q: %q is neither a level (off, emer, err, warn, info, dbg) nor a destination (console, file, syslog)",
				spec, word)
		}
	}

	if destination == "any" || destination == "console" {
		v.Console = &level
	}

	if destination == "any" || destination == "file" {
		v.File = &level
	}

	v.specs = append(v.specs, spec)

	return nil
}
