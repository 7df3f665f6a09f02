package sb_test

import (
	"log/slog"
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
		if err := db.RemoveChassis(t.Context(), tt.remove); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(ovn.Chassis()); got != tt.left {
			t.Errorf("without %s: chassis %q, want %q", tt.remove, got, tt.left)
		}
	}
	gone := sb.New([]string{"unix:/no/such.sock"}, nb.TLS{}, slog.New(slog.DiscardHandler))
	if err := gone.RemoveChassis(t.Context(), "node2"); err == nil || !strings.Contains(err.Error(), `"node2"`) || !strings.Contains(err.Error(), "/no/such.sock") {
		t.Errorf("no database: %v, want an error that names chassis and database", err)
	}
}
