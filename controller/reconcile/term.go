package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// Reasons for which a replica loses leadership.
const (
	lostLease  = "lease"  // it was not renewed in time, or another has it
	lostFenced = "fenced" // another has claimed the database, or it is not the one that was claimed
)

// lostError is the reason for which leadership was lost.
type lostError struct {
	reason string
	err    error
}

func (e *lostError) Error() string { return "leadership lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// term is a period in which this replica leads. The worker calls hold before each write. Each
// transaction waits for the term in the database.
type term struct {
	loop  *Loop
	lease *lease // nil: without election
	lose  context.CancelCauseFunc
	claim nb.Term
}

// begin claims the database as soon as it is connected. On return no earlier leader can write. It
// fails only when the term ends.
func (t *term) begin(ctx context.Context) error {
	wait := retryMin
	for {
		if err := t.hold(ctx); err != nil {
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
			t.loop.log.Warn("cannot claim the database", "err", err, "retry", wait)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
}

// hold returns nil when this replica may write now. It waits while the lease is not renewed, and
// returns an error when the term is over: from then on nothing may be written.
func (t *term) hold(ctx context.Context) error {
	for t.lease != nil && ctx.Err() == nil {
		left, renewed, over := t.lease.grace()
		if over {
			t.lose(&lostError{lostLease, errors.New("the lease was not renewed in time")})
			break
		}
		if left > 0 {
			break
		}
		t.loop.status.set(func(s *status) { s.late = true })
		select {
		case <-ctx.Done():
		case <-renewed:
		case <-time.After(t.lease.duration/3 + left): // over by then
		}
		t.loop.status.set(func(s *status) { s.late = false })
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// check is hold that also asks the database whether the term is still this replica's. It precedes
// requests that the database cannot refuse.
func (t *term) check(ctx context.Context) error {
	if err := t.hold(ctx); err != nil {
		return err
	}
	return t.note(ctx, t.loop.db.Holds(ctx))
}

// note ends the term if the error means that it is over, and returns the error.
func (t *term) note(ctx context.Context, err error) error {
	if errors.Is(err, nb.ErrFenced) && ctx.Err() == nil {
		t.lose(&lostError{lostFenced, t.explain(ctx, err)})
	}
	return err
}

// explain returns an error that names the holder of the database.
func (t *term) explain(ctx context.Context, err error) error {
	now, asked := t.loop.db.Term(ctx)
	switch {
	case asked != nil:
		return err
	case now == nil:
		return fmt.Errorf("%w: the northbound database has no term, this was %s", err, t.claim)
	case now.Number > t.claim.Number:
		return &supersededError{fmt.Errorf("%w: the northbound database is at %s, this was %s", err, now, t.claim)}
	}
	return fmt.Errorf("%w: the northbound database is back at %s, this was %s", err, now, t.claim)
}

// supersededError is the error of a term that a later term has ended.
type supersededError struct{ err error }

func (e *supersededError) Error() string { return e.err.Error() }
func (e *supersededError) Unwrap() error { return e.err }

// end logs and returns why the term is over, if it ended by accident.
func (t *term) end(ctx context.Context) error {
	var lost *lostError
	if !errors.As(context.Cause(ctx), &lost) {
		return nil
	}
	t.loop.log.Warn("leadership lost", "reason", lost.reason, "err", lost.err)
	t.loop.counts.lost(lost.reason)
	t.loop.status.set(func(s *status) { s.lost = lost })
	return lost
}
