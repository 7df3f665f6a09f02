package commandline

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Normalize rewrites args to the syntax of cobra. It accepts the spellings of Go's package flag, of
// ovn-kubernetes and of Open vSwitch:
//
//   - a long flag behind one dash: -mtu=1400, -mtu 1400
//   - a value that begins with a dash: -token -x
//   - -vSPEC where the command has the flag --verbose: -vfile:info, -v
//   - help behind a command: gateway help
//
// A flag and its value become one argument. Arguments after "--" stay unchanged.
func Normalize(root *cobra.Command, args []string) []string {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return args
	}

	c, rest := Find(root, args)
	out := slices.Clone(args[:len(args)-len(rest)]) // begins with the words of the command
	args = rest

	switch {
	case len(args) > 0 && args[0] == "help" && c.HasParent() && !c.DisableFlagParsing:
		return slices.Concat([]string{"help"}, out, args[1:])
	case c.DisableFlagParsing:
		return append(out, args...)
	}

	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--", !isFlag(arg) && c.Annotations[stopAnnotation] != "":
			return append(out, args[i:]...)
		case !isFlag(arg):
			out = append(out, arg)
			continue
		}

		withoutDashes := strings.TrimPrefix(arg[1:], "-")
		name, value, hasValue := strings.Cut(withoutDashes, "=")

		flag := c.Flags().Lookup(name)
		switch {
		case flag == nil && name == "h":
			out = append(out, "--help")
		case flag == nil && strings.HasPrefix(arg, "-v") && c.Flags().Lookup("verbose") != nil:
			out = append(out, strings.TrimSuffix("--verbose="+arg[2:], "="))
		case flag == nil:
			out = append(out, "--"+withoutDashes) // pflag refuses it
		case hasValue:
			out = append(out, "--"+name+"="+value)
		case flag.NoOptDefVal == "" && i+1 < len(args):
			i++
			out = append(out, "--"+name+"="+args[i])
		default:
			out = append(out, "--"+name)
		}
	}

	return out
}

// isFlag reports whether an argument is a flag. A lone dash is not: it often stands for standard
// input.
func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// Find returns the command that the first words of args name, and the remaining arguments.
func Find(root *cobra.Command, args []string) (*cobra.Command, []string) {
	c := root
	for len(args) > 0 {
		next := child(c, args[0])
		if next == nil {
			break
		}

		c, args = next, args[1:]
	}

	return c, args
}

func child(c *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(c.Commands(), func(k *cobra.Command) bool { return k.Name() == name })
	if i < 0 {
		return nil
	}

	return c.Commands()[i]
}

// stopAnnotation marks a command whose flags end at its first argument.
const stopAnnotation = "flags-end-at-argument"

// StopAtArgument makes the flags of c end at its first argument. Later flags belong to another
// command.
func StopAtArgument(c *cobra.Command) {
	c.Annotations = map[string]string{stopAnnotation: "true"}
	c.Flags().SetInterspersed(false)
}
