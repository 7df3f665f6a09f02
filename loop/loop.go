// Package loop runs level-triggered reconciliation: it calls one function after every wake-up and
// after every failure. Every is for what nothing wakes, Insist for the steps of a start.
package loop

import (
	"context"
	"log/slog"
	"time"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
	// settle merges a burst of events into one call.
	settle = 10 * time.Millisecond
)

// Signal is a wake-up that does not queue: Triggers merge until the receiver reads the signal.
type Signal chan struct{}

// NewSignal returns a Signal that is not raised.
func NewSignal() Signal { return make(Signal, 1) }

// Trigger raises the signal. It never blocks.
func (s Signal) Trigger() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Options configure Run.
type Options struct {
	Name   string                      // in the log
	Wake   Signal                      // triggers Apply
	Apply  func(context.Context) error // idempotent
	Resync time.Duration               // maximum time between calls of Apply; 0: unlimited
	Log    *slog.Logger
}

// Run calls Apply once, then after each wake-up and after Resync. After an error it retries with
// growing delay (50 ms to 5 s). It returns nil when ctx ends. A repeated error is logged once, and
// so is its end.
func Run(ctx context.Context, o Options) error {
	last, delay := "", firstRetry

	for {
		err := o.Apply(ctx)
		if ctx.Err() != nil {
			return nil
		}

		var again <-chan time.Time

		switch {
		case err != nil:
			if err.Error() != last {
				o.Log.Warn("not in the desired state, retrying", "part", o.Name, "error", err)
			}

			last = err.Error()
			again = time.After(delay)
			delay = min(2*delay, lastRetry)
		default:
			if last != "" {
				o.Log.Info("in the desired state", "part", o.Name)
			}

			last, delay = "", firstRetry

			if o.Resync > 0 {
				again = time.After(o.Resync)
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-o.Wake:
			if !Pause(ctx, settle) {
				return nil
			}
		}
	}
}

// Pause waits for d, and returns false if ctx ends before that.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Every calls do at each end of a period until ctx ends, and returns nil. A call that takes longer than
// a period delays the next one.
func Every(ctx context.Context, period time.Duration, do func()) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			do()
		}
	}
}

// Insist calls do until it succeeds or ctx ends, at growing intervals of up to five seconds. It passes
// each error to report, and "" on success. It returns an error only if ctx ends.
func Insist(ctx context.Context, report func(string), do func() error) error {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	for wait := first; ; wait = min(2*wait, most) {
		err := do()
		if err == nil {
			report("")
			return nil
		}

		report(err.Error())

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
