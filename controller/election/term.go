package election

import (
	"context"
	"errors"
	"time"
)

// LostLease is the reason of a LostError when the lease was not renewed in time, or another
// replica has it.
const LostLease = "lease"

// LostError is the cause of the end of a term that ended by accident.
type LostError struct {
	Reason string // for metrics: LostLease, or one of the caller
	Err    error
}

func (e *LostError) Error() string { return "leadership lost: " + e.Err.Error() }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Term is a period in which this replica leads. Its methods may be called concurrently.
type Term struct {
	lease *lease // nil: without election
	lose  context.CancelCauseFunc
	late  func(bool) // may be nil
}

// WithoutElection calls lead for a term that only Lose and the context end. Its Hold does not
// wait.
func WithoutElection(ctx context.Context, lead func(context.Context, *Term) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)

	return lead(ctx, &Term{lose: lose})
}

// Lose ends the term. The cause of its context becomes a LostError.
func (t *Term) Lose(reason string, err error) { t.lose(&LostError{reason, err}) }

// Hold returns nil when this replica may write now. It waits while the lease is not renewed, and
// returns the cause when the term is over: from then on nothing may be written. The context must
// be that of the term, or derived from it. A request that is sent right after Hold has a third of
// the lease to arrive.
func (t *Term) Hold(ctx context.Context) error {
	for t.lease != nil && ctx.Err() == nil {
		left, renewed, over := t.lease.grace()
		if over {
			t.Lose(LostLease, errors.New("the lease was not renewed in time"))
			break
		}

		if left > 0 {
			break
		}

		t.wait(ctx, renewed, t.lease.duration/3+left) // until the lease is over
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return nil
}

// wait returns at the next renewal, or after the limit.
func (t *Term) wait(ctx context.Context, renewed <-chan struct{}, limit time.Duration) {
	if t.late != nil {
		t.late(true)
		defer t.late(false)
	}

	select {
	case <-ctx.Done():
	case <-renewed:
	case <-time.After(limit):
	}
}
