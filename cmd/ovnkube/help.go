package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// Headings of the root's list of commands.
const (
	groupRun           = "Run"
	groupLook          = "Look"
	groupFirstReleases = "Commands of ovn-kubernetes' first releases, also by links of their names (docs/first-generation.md)"
)

// topics returns the topics of 'ovnkube help' besides commands.
func topics() []*cobra.Command {
	settings := &cobra.Command{
		Use:   "settings",
		Short: "every setting of controller and agent, or those with a WORD in them",
	}
	settings.SetHelpFunc(func(c *cobra.Command, words []string) { printSettings(words, c.OutOrStdout()) })

	roleFlags := &cobra.Command{
		Use:     "ovn-kubernetes",
		Aliases: []string{"second-generation"}, // its name in earlier versions of ovn-ebpf
		Short:   "flags of ovnkube without a command, as in current ovn-kubernetes",
	}
	roleFlags.SetHelpFunc(func(c *cobra.Command, _ []string) { printRoleFlags(c.Root(), c.OutOrStdout()) })

	return []*cobra.Command{settings, roleFlags}
}

// shortenHelp omits settings from the help of commands, and all flags from that of the root.
func shortenHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		shared := 0

		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			f.Hidden = c == root || f.Usage == "" || setting.Shared(f.Value)
			if f.Usage != "" && setting.Shared(f.Value) {
				shared++
			}
		})
		help(c, args)

		if shared > 0 && c != root {
			fmt.Fprintf(c.OutOrStdout(),
				"\nThis command also has a flag for each of %d settings. 'ovnkube help settings' lists them,\n'ovnkube help settings WORD' those that contain WORD.\n",
				shared)
		}
	})
}

// printSettings prints the settings that contain all words in their names or texts, or that belong
// to the role that a word names.
func printSettings(words []string, w io.Writer) {
	s := newSettings("")

	fmt.Fprint(w, `The value of a setting is taken from the first of these sources that has it: the flag, the environment variable
(OVNKUBE_CLUSTER_SUBNETS for --cluster-subnets), the configuration file (`+defaultConfigFile+`),
external_ids of Open vSwitch, the default. 'ovnkube config show' prints the values and their sources.
docs/configuration.md has this list as tables.
`)

	for _, o := range s.Settings {
		if text := settingText(s, o); matchesAll(words, text, o.Role) {
			fmt.Fprintln(w, text)
		}
	}

	if len(words) > 0 {
		return
	}

	fmt.Fprint(w, "\nFlags of ovn-kubernetes that are accepted without effect:\n")

	for _, u := range s.UnusedNames {
		if u.Flag != "" {
			fmt.Fprintf(w, "  --%s: %s\n", u.Flag, u.Why)
		}
	}
}

// settingText returns the help on a setting: its flag, usage, default, key in the file and aliases.
func settingText(s *settings, o *setting.Setting) string {
	placeholder, usage := flag.UnquoteUsage(&flag.Flag{Name: o.Flag, Usage: o.Usage, Value: o.Value})

	if d := o.Value.String(); d != "" {
		usage += fmt.Sprintf(" (default %s)", d)
	} else if o.Flag == "metrics-bind-address" {
		usage += fmt.Sprintf(" (default controller %s, agent %s)", controllerMetrics, agentMetrics)
	}

	text := fmt.Sprintf("\n--%s %s%s\n    file: [%s] %s", o.Flag, placeholder, indented(usage), o.Section, o.Key)

	var aliases []string

	for _, a := range s.Aliases {
		if a.For == o.Flag && a.Flag != "" {
			aliases = append(aliases, "--"+a.Flag)
		}
	}

	if len(aliases) > 0 {
		text += "; also " + strings.Join(aliases, ", ")
	}

	return text
}

// matchesAll reports whether the text of a setting contains every word, in upper or lower case. The
// words controller and agent also match all settings of that role.
func matchesAll(words []string, text string, role setting.Role) bool {
	searched := strings.ToLower(strings.Join(strings.Fields(text), " "))
	roleOfWord := map[string]setting.Role{"controller": roleController, "agent": roleAgent}

	for _, word := range words {
		wanted, isRole := roleOfWord[word]
		hasRole := isRole && (role == 0 || role == wanted) // 0: all roles

		if !hasRole && !strings.Contains(searched, strings.ToLower(word)) {
			return false
		}
	}

	return true
}

// indented returns the words of a text in lines of at most 100 characters, each after a line feed
// and four spaces.
func indented(text string) string {
	var b strings.Builder

	const width = 100

	column := width

	for _, word := range strings.Fields(text) {
		if column+1+len(word) > width {
			b.WriteString("\n   ")

			column = 3
		}

		b.WriteString(" " + word)
		column += 1 + len(word)
	}

	return b.String()
}

// printRoleFlags prints the flags of ovnkube without a command, as in current ovn-kubernetes.
func printRoleFlags(root *cobra.Command, w io.Writer) {
	fmt.Fprint(w, `Without a command, ovnkube takes the flags of ovn-kubernetes:
  ovnkube -init-master=NAME ...   runs the controller
  ovnkube -init-node=NAME ...     runs the node agent
One process can run both. Single and double dashes are the same. Every setting is a flag:
'ovnkube help settings' lists them. The other flags:

`)

	own := pflag.NewFlagSet("", pflag.ContinueOnError)

	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Usage != "" && !setting.Shared(f.Value) {
			own.AddFlag(f)
		}
	})
	fmt.Fprint(w, own.FlagUsages())
}
