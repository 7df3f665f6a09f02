// Package loop calls functions repeatedly. Run is level-triggered reconciliation: it calls a
// function after each wake-up and after each failure. Every calls a function periodically. Insist
// repeats a step of a start until it succeeds.
package loop

import (
	"context"
	"log/slog"
	"time"
)

const (
	// Delay after the first failure, and after many.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 5 * time.Second
	// wakeDelay merges the wake-ups of a burst of events into one call.
	wakeDelay = 10 * time.Millisecond
)

// Signal is a wake-up that does not queue: Triggers merge until the receiver reads the signal. It
// has one receiver, and any number of goroutines may trigger it.
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
	Resync time.Duration               // from a success to the next call of Apply; 0: only a wake-up causes it
	Log    *slog.Logger
}

// Run calls Apply at once, after each wake-up, and when Resync is over. After an error, it calls
// Apply again with growing delay (50 ms to 5 s), or at a wake-up before that. It returns nil when
// ctx ends. An error that is repeated is logged once, and so is the first success after errors.
func Run(ctx context.Context, o Options) error {
	logged, delay := "", minRetryDelay // logged is the last error

	for {
		err := o.Apply(ctx)
		if ctx.Err() != nil {
			return nil
		}

		var next <-chan time.Time // nil blocks: only a wake-up causes the next call

		if err != nil {
			if err.Error() != logged {
				o.Log.Warn("not in the desired state, retrying", "part", o.Name, "error", err)
			}

			logged = err.Error()
			next = time.After(delay)
			delay = min(2*delay, maxRetryDelay)
		} else {
			if logged != "" {
				o.Log.Info("in the desired state", "part", o.Name)
			}

			logged, delay = "", minRetryDelay

			if o.Resync > 0 {
				next = time.After(o.Resync)
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-next:
		case <-o.Wake:
			if !Pause(ctx, wakeDelay) {
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

// Every calls do after each period until ctx ends, and returns nil. The first call is after one
// period. A call that takes longer than a period delays the next one.
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

// Insist calls do until it succeeds or ctx ends, at growing intervals (100 ms to 5 s). It passes
// the text of each error to report, and "" on success. It returns an error only if ctx ends.
func Insist(ctx context.Context, report func(string), do func() error) error {
	const minWait, maxWait = 100 * time.Millisecond, 5 * time.Second
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		err := do()
		if err == nil {
			report("")
			return nil
		}

		report(err.Error())

		if !Pause(ctx, wait) {
			return ctx.Err()
		}
	}
}
