package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
)

// environment is what a command may write to.
type environment struct{ stdout, stderr io.Writer }

// action runs a command after its flags are parsed; args are what is left.
type action func(ctx context.Context, args []string, env *environment) error

// exitStatus is a status that becomes ours, with nothing printed.
type exitStatus = commandline.ExitStatus

// command declares a node of the command tree. One with children and no setup only groups; setup
// declares the flags and returns what to do.
type command struct {
	name, arguments string
	summary, detail string
	group           string // of the root's commands: under which heading the root lists it
	hidden          bool
	setup           func(*flag.FlagSet) action
	children        []*command
}

// cobra makes the command.
func (c *command) cobra() *cobra.Command {
	out := &cobra.Command{
		Use: strings.TrimSpace(c.name + " " + c.arguments), Short: c.summary, Long: c.detail, GroupID: c.group, Hidden: c.hidden,
	}
	if c.setup != nil {
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		act := c.setup(flags)
		out.Flags().AddGoFlagSet(flags)
		out.RunE = func(k *cobra.Command, args []string) error {
			return act(k.Context(), args, &environment{k.OutOrStdout(), k.ErrOrStderr()})
		}
	}
	for _, child := range c.children {
		out.AddCommand(child.cobra())
	}
	return out
}

// noArguments refuses what is left behind the flags.
func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

func versionCommand(*flag.FlagSet) action {
	return func(_ context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		_, err := fmt.Fprintln(env.stdout, "ovnkube", version)
		return err
	}
}
