package agent

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
)

// The end of one wait during the start is not the end of the start.
func TestReadinessDuringStart(t *testing.T) {
	r := newReadiness(slog.New(slog.DiscardHandler))
	expect := func(want ...string) {
		t.Helper()
		if got := r.missing(); !slices.Equal(got, want) {
			t.Errorf("missing %q, want %q", got, want)
		}
	}
	expect("starting")
	tries := 0
	err := insist(t.Context(), r.starting, func() error {
		if tries++; tries == 1 {
			return errors.New("no database")
		}
		expect("no database")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect("starting")
	r.add(func() string { return "gateway" })
	expect("starting", "gateway")
	r.complete()
	expect("gateway")
}
