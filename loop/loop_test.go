package loop

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wake := NewSignal()
	calls := 0
	err := Run(ctx, Options{Name: "test", Wake: wake, Log: slog.New(slog.DiscardHandler), Apply: func(context.Context) error {
		calls++
		switch calls {
		case 1:
			return errors.New("retried without a wake-up")
		case 2:
			wake.Trigger()
			wake.Trigger() // one more call, not two
		case 3:
			cancel()
		}
		return nil
	}})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, error %v; want 3 and none", calls, err)
	}
}
