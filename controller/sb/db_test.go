package sb_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
)

func TestRemoveChassis(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("node1")

	db := sb.New([]string{ovn.Southbound()}, nb.TLS{}, slog.New(slog.DiscardHandler))
	for _, tt := range []struct{ remove, left string }{{"node2", "node1"}, {"node1", ""}, {"node1", ""}} {
		if err := db.RemoveChassis(t.Context(), tt.remove, fence("one", nil)); err != nil {
			t.Fatal(err)
		}

		if got := strings.TrimSpace(ovn.Chassis()); got != tt.left {
			t.Errorf("without %s: chassis %q, want %q", tt.remove, got, tt.left)
		}
	}

	gone := sb.New([]string{"unix:/no/such.sock"}, nb.TLS{}, slog.New(slog.DiscardHandler))
	if err := gone.RemoveChassis(t.Context(), "node2", fence("one", nil)); err == nil || !strings.Contains(err.Error(), `"node2"`) || !strings.Contains(err.Error(), "/no/such.sock") {
		t.Errorf("no database: %v, want an error that names chassis and database", err)
	}
}

func fence(term string, holds func() error) sb.Fence {
	return sb.Fence{Term: term, Holds: func(context.Context) error {
		if holds == nil {
			return nil
		}

		return holds()
	}}
}

func TestListChassis(t *testing.T) {
	ovn := nbtest.StartOVN(t)

	db := sb.New([]string{ovn.Southbound()}, nb.TLS{}, slog.New(slog.DiscardHandler))
	if all, err := db.ListChassis(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("without nodes: %v, %v", all, err)
	}

	ovn.AddChassis("node1")
	ovn.AddChassis("node2")

	all, err := db.ListChassis(t.Context())
	if err != nil || len(all) != 2 || len(all["node2"].IPs) != 1 {
		t.Errorf("chassis %+v, %v", all, err)
	}

	gone := sb.New([]string{"unix:/no/such.sock"}, nb.TLS{}, slog.New(slog.DiscardHandler))
	if _, err := gone.ListChassis(t.Context()); err == nil || !strings.Contains(err.Error(), "/no/such.sock") {
		t.Errorf("no database: %v, want an error that names it", err)
	}
}

// A leader whose term is over removes nothing: it knows from the Northbound database, or, if it
// was stopped after it had asked, from what the next leader has written since.
func TestRemoveChassisIsFenced(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	for _, name := range []string{"a", "b", "c"} {
		ovn.AddChassis(name)
	}

	ovn.Sync() // northd has made its global row
	db := sb.New([]string{ovn.Southbound()}, nb.TLS{}, slog.New(slog.DiscardHandler))

	over := errors.New("over")
	if err := db.RemoveChassis(t.Context(), "a", fence("old", func() error { return over })); !errors.Is(err, over) {
		t.Errorf("the term is over: %v", err)
	}

	err := db.RemoveChassis(t.Context(), "a", fence("old", func() error {
		return db.RemoveChassis(t.Context(), "b", fence("new", nil)) // meanwhile
	}))
	if !errors.Is(err, nb.ErrFenced) {
		t.Errorf("another has written meanwhile: %v", err)
	}

	if got := strings.Fields(ovn.Chassis()); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "c"}) {
		t.Errorf("chassis %v, want a and c", got)
	}

	if err := db.RemoveChassis(t.Context(), "a", fence("new", nil)); err != nil {
		t.Errorf("the leader: %v", err)
	}
	// A Southbound database that was made anew, or restored, locks no leader out.
	if err := db.RemoveChassis(t.Context(), "c", fence("old", nil)); err != nil {
		t.Errorf("a leader again: %v", err)
	}
}
