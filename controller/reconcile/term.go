package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// lostFenced is the reason of a LostError when another replica has claimed the database, or when
// it is not the database that was claimed.
const lostFenced = "fenced"

// term is a period in which this replica leads. The worker calls Hold before each write. Each
// transaction to the Northbound database is conditional on the claim.
type term struct {
	*election.Term
	loop  *Loop
	claim nb.Term
}

// begin claims the database as soon as it is connected. On return no earlier leader can write. It
// fails only when the term ends.
func (t *term) begin(ctx context.Context) error {
	wait := retryMin

	for {
		if err := t.Hold(ctx); err != nil {
			return err
		}

		claim, err := t.loop.db.Claim(ctx, t.loop.identity)
		if err == nil {
			t.claim = claim
			t.loop.log.Info("database claimed", "term", claim.Number)
			t.loop.status.set(func(s *status) { s.term = claim.Number })

			return nil
		}

		if ctx.Err() == nil {
			t.loop.log.Warn("cannot claim the database", "error", err, "retry", wait)
		}

		if !loop.Pause(ctx, wait) {
			return context.Cause(ctx)
		}

		wait = min(2*wait, time.Second) // not retryMax: the cluster has no leader meanwhile
	}
}

// holdInDatabase is Hold that also reads from the database whether the term is still this
// replica's. It precedes requests to other servers, which would accept them from a former leader.
func (t *term) holdInDatabase(ctx context.Context) error {
	if err := t.Hold(ctx); err != nil {
		return err
	}

	return t.loseIfFenced(ctx, t.loop.db.Holds(ctx))
}

// loseIfFenced ends the term if the error means that it is over, and returns the error.
func (t *term) loseIfFenced(ctx context.Context, err error) error {
	if errors.Is(err, nb.ErrFenced) && ctx.Err() == nil {
		t.Lose(lostFenced, t.explain(ctx, err))
	}

	return err
}

// explain returns an error that names the holder of the database.
func (t *term) explain(ctx context.Context, err error) error {
	now, readErr := t.loop.db.Term(ctx)
	switch {
	case readErr != nil:
		return err
	case now == nil:
		return fmt.Errorf("%w: the northbound database has no term, this was %s", err, t.claim)
	case now.Number > t.claim.Number:
		return &supersededError{
			fmt.Errorf("%w: the northbound database is at %s, this was %s", err, now, t.claim),
		}
	}

	return fmt.Errorf("%w: the northbound database is back at %s, this was %s", err, now, t.claim)
}

// supersededError is the error of a term that a later term has ended.
type supersededError struct{ err error }

func (e *supersededError) Error() string { return e.err.Error() }
func (e *supersededError) Unwrap() error { return e.err }

// end returns nil if the context ended on purpose. If leadership was lost, it logs and returns the
// LostError.
func (t *term) end(ctx context.Context) error {
	var lost *election.LostError
	if !errors.As(context.Cause(ctx), &lost) {
		return nil
	}

	t.loop.log.Warn("leadership lost", "reason", lost.Reason, "error", lost.Err)
	t.loop.counts.countLoss(lost.Reason)
	t.loop.status.set(func(s *status) { s.lost = lost })

	return lost
}
