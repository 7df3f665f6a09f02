package readiness

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// The end of one wait during the start is not the end of the start.
func TestReadiness_duringStart(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	expect := func(want ...string) {
		t.Helper()

		if got := r.Missing(); !slices.Equal(got, want) {
			t.Errorf("missing %q, want %q", got, want)
		}
	}

	expect("starting")

	tries := 0

	err := loop.Insist(t.Context(), r.Starting, func() error {
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
	r.Add(func() string { return "gateway" })
	expect("starting", "gateway")
	r.Complete()
	expect("gateway")
}

// Missing items make /readyz fail, faults of the environment do not. /healthz depends on neither.
func TestReadiness_Register(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	missing := "gateway"

	r.Add(func() string { return missing })
	r.Complete()

	mux := http.NewServeMux()
	r.Register(mux)

	expect := func(path string, status int, body string) {
		t.Helper()

		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))

		if w.Code != status || w.Body.String() != body {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, status, body)
		}
	}

	expect("/readyz", http.StatusServiceUnavailable, "gateway\n")
	expect("/healthz", http.StatusOK, "ok\n")
	r.SetFaults(func() []string { return []string{"disk full"} })
	expect("/readyz", http.StatusServiceUnavailable, "gateway\ndisk full\n")

	missing = ""

	expect("/readyz", http.StatusOK, "ok\ndisk full\n")
}
