package loop

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
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

func TestInsist_reportsUntilSuccess(t *testing.T) {
	var said []string

	ctx, cancel := context.WithCancel(t.Context())

	err := Insist(ctx, func(s string) { said = append(said, s) }, func() error {
		if len(said) == 2 {
			return nil
		}

		return os.ErrNotExist
	})
	if err != nil || !slices.Equal(said, []string{"file does not exist", "file does not exist", ""}) {
		t.Errorf("said %q, error %v", said, err)
	}

	cancel()

	if err := Insist(ctx, func(string) {}, func() error { return os.ErrNotExist }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		var at []time.Duration

		began := time.Now()

		err := Every(ctx, time.Second, func() {
			if at = append(at, time.Since(began)); len(at) == 2 {
				cancel()
			}
		})
		if err != nil || !slices.Equal(at, []time.Duration{time.Second, 2 * time.Second}) {
			t.Errorf("called after %v, error %v", at, err)
		}
	})
}
