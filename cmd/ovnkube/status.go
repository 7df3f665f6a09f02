package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

func statusCommand(f *flag.FlagSet) action {
	agentFinder := newFinder(f)
	asJSON := f.Bool("json", false, "an object instead of a screen")

	return func(ctx context.Context, _ []string, env *environment) error {
		if os.Geteuid() != 0 {
			return errors.New("only root sees all of it")
		}

		found, err := agentFinder.find(ctx, env)
		if err != nil {
			return err
		}

		if found.errRecord != nil {
			return found.errRecord
		}

		report := status.Judge(status.Look(ctx, found.record))
		if *asJSON {
			err = env.printJSON(report)
		} else {
			err = report.Print(env.stdout)
		}

		if err != nil || report.State == status.Right {
			return err
		}

		return exitStatus(map[status.State]int{status.Degraded: 2, status.Broken: 3}[report.State])
	}
}
