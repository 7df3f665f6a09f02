package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
	"github.com/ovn-ebpf/ovn-ebpf/version"
)

// environment holds the output streams of a command.
type environment struct{ stdout, stderr io.Writer }

// log returns a log to stderr, for a command without settings of a log.
func (e *environment) log() *slog.Logger { return slog.New(slog.NewTextHandler(e.stderr, nil)) }

// printJSON prints v as indented JSON.
func (e *environment) printJSON(v any) error {
	encoder := json.NewEncoder(e.stdout)
	encoder.SetIndent("", "  ")

	return encoder.Encode(v)
}

// action runs a command after its flags are parsed. args are the remaining arguments, which are
// empty if the command declares none.
type action func(ctx context.Context, args []string, env *environment) error

// exitStatus sets the exit status without a message.
type exitStatus = commandline.ExitStatus

// command declares a node of the command tree. A node with children but without setup is a group.
// setup declares the flags and returns the action.
type command struct {
	name, arguments string
	summary, detail string
	group           string // heading in the root's help; "": the command is not at the top
	hidden          bool
	setup           func(*flag.FlagSet) action
	children        []*command
}

// cobra converts the command to a cobra command.
func (c *command) cobra() *cobra.Command {
	out := &cobra.Command{
		Use:     strings.TrimSpace(c.name + " " + c.arguments),
		Short:   c.summary,
		Long:    c.detail,
		GroupID: c.group,
		Hidden:  c.hidden,
	}
	if c.setup != nil {
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		run := c.setup(flags)
		out.Flags().AddGoFlagSet(flags)
		out.RunE = func(k *cobra.Command, args []string) error {
			if c.arguments == "" {
				if err := noArguments(args); err != nil {
					return err
				}
			}

			return run(k.Context(), args, &environment{k.OutOrStdout(), k.ErrOrStderr()})
		}
	}

	for _, child := range c.children {
		out.AddCommand(child.cobra())
	}

	return out
}

// noArguments rejects remaining arguments.
func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}

	return nil
}

func versionCommand(*flag.FlagSet) action {
	return func(_ context.Context, _ []string, env *environment) error {
		_, err := fmt.Fprintln(env.stdout, "ovnkube", version.String())
		return err
	}
}
