package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// environment is what a command may write to.
type environment struct{ stdout, stderr io.Writer }

// action runs a command after its flags are parsed; args are what is left.
type action func(ctx context.Context, args []string, env *environment) error

// command is a node of the command tree. One with children and no setup only
// groups; setup declares the flags and returns what to do.
type command struct {
	name, arguments string
	summary, detail string
	group           string // of the root's commands: under which heading the root lists it
	hidden          bool
	setup           func(*flag.FlagSet) action
	children        []*command
}

// run finds the command that args name below c and runs it. Errors carry the
// command's full name.
func (c *command) run(ctx context.Context, parent string, args []string, env *environment) error {
	path := strings.TrimSpace(parent + " " + c.name)
	if len(args) > 0 {
		for _, child := range c.children {
			if child.name == args[0] {
				return child.run(ctx, path, args[1:], env)
			}
		}
		if args[0] == "help" {
			return c.helpOn(path, args[1:], env.stdout)
		}
		if len(c.children) > 0 && !strings.HasPrefix(args[0], "-") {
			return fmt.Errorf("%q is no command; see 'ovnkube %s'", strings.TrimSpace(path+" "+args[0]), strings.TrimSpace(path+" --help"))
		}
	}
	flags := flag.NewFlagSet(path, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var act action
	if c.setup != nil {
		act = c.setup(flags)
	}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && act == nil, err == nil && c.name == "" && len(args) == 0:
		return c.help(path, env.stdout)
	case err != nil:
		return fmt.Errorf("%s; see 'ovnkube %s'", strings.TrimPrefix(path+": "+err.Error(), ": "), strings.TrimSpace(path+" --help"))
	}
	if err := act(ctx, flags.Args(), env); err != nil {
		if errors.As(err, new(exitStatus)) || path == "" {
			return err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
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
