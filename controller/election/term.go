package election

import (
	"context"
	"errors"
	"time"
)

// LostLease is the reason of a LostError when the lease was not renewed in time, or another
// replica has it.
const LostLease = "lease"

// LostError is the cause of a term's context if leadership was lost (Term.Lose). A term that ends
// with Run's context has another cause.
type LostError struct {
	Reason string // for metrics: LostLease, or a reason of the caller
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

// WithoutElection calls lead once, without a Lease: only Lose and the context end the term, and
// Hold does not wait. It returns the error of lead.
func WithoutElection(ctx context.Context, lead func(context.Context, *Term) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)

	return lead(ctx, &Term{lose: lose})
}

// Lose ends the term. The cause of its context becomes a LostError.
func (t *Term) Lose(reason string, err error) { t.lose(&LostError{reason, err}) }

// Hold returns nil when this replica may write now. It waits while the renewal of the lease is
// late. When the term is over, it returns the cause, and nothing may be written any more. The
// context must be that of the term, or derived from it. A request that is sent right after Hold has
// a third of the lease to arrive.
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

		// left is 0 or less, and two thirds of the lease are over: this waits for the last third.
		t.wait(ctx, renewed, t.lease.duration/3+left)
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
