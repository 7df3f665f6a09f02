package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
)

// elect leads whenever this replica is elected, until the context ends. Without an election it
// leads at once, and again when the database has lost its term. If another controller has claimed
// the database meanwhile, elect returns an error: otherwise both would claim it in turns.
func (l *Loop) elect(ctx context.Context) error {
	if l.election == nil {
		for ctx.Err() == nil {
			var superseded *supersededError
			if err := election.WithoutElection(ctx, l.lead); errors.As(err, &superseded) {
				return fmt.Errorf("lead without election: %w: run one controller, or all with --leader-elect",
					err)
			}
		}

		return nil
	}

	return election.Run(ctx, election.Options{
		Config: *l.election, Client: l.client, Clock: l.clock, Log: l.log,
		Leader: func(string) { l.status.set(func(s *status) { s.lost = nil }) },
		Late:   func(late bool) { l.status.set(func(s *status) { s.late = late }) },
	}, l.lead)
}
