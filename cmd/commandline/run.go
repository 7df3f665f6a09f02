package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// ExitStatus is an error that sets the exit status without a message, such as that of a child
// process.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Run runs the command that args name below root, after Prepare. Errors contain the command's path.
// Without arguments, a root with commands prints its help.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 && root.HasSubCommands() {
		args = []string{"--help"}
	}

	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(Normalize(root, args))

	c, err := root.ExecuteContextC(ctx)
	if err == nil || errors.As(err, new(ExitStatus)) || c == root {
		return err
	}

	return fmt.Errorf("%s: %w", strings.TrimPrefix(c.CommandPath(), root.Name()+" "), err)
}

// Main runs a program with args until it ends or gets SIGINT or SIGTERM, and exits with its status.
func Main(
	program string,
	args []string,
	run func(ctx context.Context, args []string, stdout, stderr io.Writer) error,
) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Status(program, run(ctx, args, os.Stdout, os.Stderr), os.Stderr)

	stop()
	os.Exit(code)
}

// Status prints err on one line, even if it joins several errors. It returns the exit status: 0
// without an error, the value of an ExitStatus, or 1.
func Status(program string, err error, stderr io.Writer) int {
	var status ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}

	fmt.Fprintf(stderr, "%s: %s\n", program, strings.ReplaceAll(err.Error(), "\n", "; "))

	return 1
}

// Prepare completes the tree below root, after its commands were added: help, errors, and the
// behaviour of group commands.
func Prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, c.CommandPath())
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "help on a command or a topic",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string

			if target, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, k := range target.Commands() {
					names = append(names, k.Name())
				}
			}

			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			target, rest, err := root.Find(args)
			if err != nil {
				return err
			}

			if len(rest) > 0 && target.HasSubCommands() {
				return unknownCommand(target, rest[0])
			}

			target.InitDefaultHelpFlag()
			target.InitDefaultVersionFlag()
			target.HelpFunc()(target, rest)

			return nil
		},
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.Long != "" {
			fmt.Fprintf(c.OutOrStdout(), "%s\n\n", c.Short)
		}

		help(c, args)
	})
	prepareGroups(root)
}

// prepareGroups makes group commands print their help, or reject an unknown word. This also holds
// for a runnable command with children, as its arguments are not commands.
func prepareGroups(c *cobra.Command) {
	for _, child := range c.Commands() {
		prepareGroups(child)
	}

	if !c.HasSubCommands() {
		return
	}

	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}

		return nil
	}
	if !c.Runnable() {
		c.DisableFlagsInUseLine = true
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
}

// unknownCommand returns the error for a word that is not a command below c.
func unknownCommand(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2 // typos of up to two letters

	suggestion := ""
	if s := c.SuggestionsFor(word); len(s) > 0 {
		suggestion = fmt.Sprintf(", did you mean %s?", strings.Join(s, " or "))
	}

	return fmt.Errorf("%q is no command%s; see '%s --help'", word, suggestion, c.CommandPath())
}
