package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// Headings under which the root lists its commands.
const (
	groupRun   = "Run"
	groupLook  = "Look"
	groupTry   = "Try and measure"
	groupFirst = "Commands of the first generation, also by links of their names (docs/first-generation.md)"
)

// topic is what 'ovnkube help' explains beside commands.
type topic struct {
	name, summary string
	print         func(args []string, w io.Writer) error
}

func topics() []topic {
	return []topic{
		{"settings", "every setting of controller and agent, or those with a WORD in them", printSettings},
		{"second-generation", "flags of ovnkube without a command, as the second generation has it", printClassic},
	}
}

// helpOn prints the help of the command that args name below c, or of a topic.
func (c *command) helpOn(path string, args []string, w io.Writer) error {
	if len(args) == 0 {
		return c.help(path, w)
	}
	for _, child := range c.children {
		if child.name == args[0] {
			return child.helpOn(strings.TrimSpace(path+" "+child.name), args[1:], w)
		}
	}
	if path == "" {
		for _, t := range topics() {
			if t.name == args[0] {
				return t.print(args[1:], w)
			}
		}
	}
	return fmt.Errorf("%q is no command; see 'ovnkube %s'", strings.TrimSpace(path+" "+args[0]), strings.TrimSpace(path+" --help"))
}

// help prints what a newcomer needs, and returns flag.ErrHelp.
func (c *command) help(path string, w io.Writer) error {
	fmt.Fprintf(w, "%s\n\nUsage: ovnkube", c.summary)
	if path == "" {
		return c.helpRoot(w)
	}
	fmt.Fprint(w, " "+path)
	own, shared := c.flags(path, w)
	if c.setup != nil {
		fmt.Fprint(w, " [flags]")
	}
	if len(c.children) > 0 {
		fmt.Fprint(w, " COMMAND")
	}
	fmt.Fprintln(w, strings.TrimRight(" "+c.arguments, " "))
	if c.detail != "" {
		fmt.Fprintf(w, "\n%s\n", c.detail)
	}
	if len(c.children) > 0 {
		fmt.Fprintln(w, "\nCommands:")
		if err := list(c.children, w); err != nil {
			return err
		}
	}
	if count(own) > 0 {
		fmt.Fprintln(w, "\nFlags:")
		own.PrintDefaults()
	}
	if shared > 0 {
		fmt.Fprintf(w, "\nSettings are flags as well, %d here: 'ovnkube help settings' lists them, 'ovnkube help settings mtu'\nthose with that word.\n", shared)
	}
	return flag.ErrHelp
}

// helpRoot prints the commands, and no flags.
func (c *command) helpRoot(w io.Writer) error {
	fmt.Fprintln(w, " COMMAND [flags]")
	for _, group := range []string{groupRun, groupLook, groupTry, groupFirst} {
		fmt.Fprintf(w, "\n%s:\n", group)
		in := slices.DeleteFunc(slices.Clone(c.children), func(child *command) bool { return child.group != group })
		if err := list(in, w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "\nHelp:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "  ovnkube help COMMAND\ta command and its flags\n")
	for _, t := range topics() {
		fmt.Fprintf(table, "  ovnkube help %s\t%s\n", t.name, t.summary)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return flag.ErrHelp
}

func list(commands []*command, w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		if !c.hidden {
			fmt.Fprintf(table, "  %s\t%s\n", c.name, c.summary)
		}
	}
	return table.Flush()
}

// flags returns the flags that the command has beside settings, and how many settings it has.
func (c *command) flags(path string, w io.Writer) (own *flag.FlagSet, shared int) {
	all, own := flag.NewFlagSet(path, flag.ContinueOnError), flag.NewFlagSet(path, flag.ContinueOnError)
	own.SetOutput(w)
	if c.setup != nil {
		c.setup(all)
	}
	all.VisitAll(func(f *flag.Flag) {
		switch {
		case f.Usage == "": // another spelling
		case setting.Shared(f.Value):
			shared++
		default:
			own.Var(f.Value, f.Name, f.Usage)
			own.Lookup(f.Name).DefValue = f.DefValue
		}
	})
	return own, shared
}

func count(f *flag.FlagSet) (n int) {
	f.VisitAll(func(*flag.Flag) { n++ })
	return n
}

// printSettings prints the settings that have all words in their names or texts, or are the role's
// that a word names, and returns flag.ErrHelp.
func printSettings(words []string, w io.Writer) error {
	s := newSettings("")
	fmt.Fprint(w, `A setting is given by a flag, else by an environment variable (OVNKUBE_ and the flag's name, as OVNKUBE_MTU), else
in the file (`+defaultConfigFile+`), else in external_ids of Open vSwitch, else it has its default.
'ovnkube config show' prints the values and where they are from; docs/configuration.md has this as tables.
`)
	for _, o := range s.Settings {
		role := map[setting.Role]string{roleController: "controller", roleAgent: "agent"}[o.Role]
		var others []string
		for _, a := range s.Aliases {
			if a.For == o.Flag && a.Flag != "" {
				others = append(others, "--"+a.Flag)
			}
		}
		placeholder, usage := flag.UnquoteUsage(&flag.Flag{Name: o.Flag, Usage: o.Usage, Value: o.Value})
		text := fmt.Sprintf("\n--%s %s\n    %s", o.Flag, placeholder, strings.ReplaceAll(usage, "\n", "\n    "))
		if d := o.Value.String(); d != "" {
			text += fmt.Sprintf(" (default %s)", d)
		} else if o.Flag == "metrics-bind-address" {
			text += fmt.Sprintf(" (default controller %s, agent %s)", controllerMetrics, agentMetrics)
		}
		text += fmt.Sprintf("\n    file: [%s] %s", o.Section, o.Key)
		if len(others) > 0 {
			text += "; also " + strings.Join(others, ", ")
		}
		has := func(word string) bool {
			return word == role || role == "" && (word == "controller" || word == "agent") || strings.Contains(strings.ToLower(text), strings.ToLower(word))
		}
		if !slices.ContainsFunc(words, func(word string) bool { return !has(word) }) {
			fmt.Fprintln(w, text)
		}
	}
	if len(words) > 0 {
		return flag.ErrHelp
	}
	fmt.Fprint(w, "\nTaken without effect, because ovn-kubernetes has them:\n")
	for _, u := range s.Unused {
		if u.Flag != "" {
			fmt.Fprintf(w, "  --%s: %s\n", u.Flag, u.Why)
		}
	}
	return flag.ErrHelp
}

// printClassic prints the flags of ovnkube without a command, and returns flag.ErrHelp.
func printClassic(_ []string, w io.Writer) error {
	fmt.Fprint(w, `Without a command ovnkube is started as the second generation is:
  ovnkube -init-master=NAME ...   runs the controller
  ovnkube -init-node=NAME ...     runs the node agent
Both may be given in one process. Single and double dashes are the same. Every setting
is a flag: 'ovnkube help settings' lists them. The other flags:

`)
	own, _ := root().flags("", w)
	own.PrintDefaults()
	return flag.ErrHelp
}
