// Package loop runs level-triggered repair: one function that brings the
// world in line, called again after every wake-up and after every failure.
package loop

import (
	"context"
	"log/slog"
	"time"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
	// settle lets a burst of events become one call.
	settle = 10 * time.Millisecond
)

// Signal is a wake-up that does not queue: any number of Triggers before the
// receiver looks are one.
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

// Options of Run.
type Options struct {
	Name   string                      // in the log
	Wake   Signal                      // calls Apply
	Apply  func(context.Context) error // idempotent
	Resync time.Duration               // call Apply at least that often; 0 is never
	Log    *slog.Logger
}

// Run calls Apply once, then after each wake-up, after Resync, and with
// growing delay (50 ms to 5 s) after an error, until ctx ends; then it returns
// nil. The same error is logged once, and so is its end.
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
				o.Log.Warn("not in the desired state, trying again", "part", o.Name, "error", err)
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
			if !pause(ctx, settle) {
				return nil
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
