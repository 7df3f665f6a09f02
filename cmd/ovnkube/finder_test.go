package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// Every tool reads the run directory from the environment or the file, and all other paths from the
// agent's record there. Flags take precedence.
func TestToolsFindTheAgent(t *testing.T) {
	runDir, pins := t.TempDir(), filepath.Join(t.TempDir(), "pins-of-the-record")

	var r status.Record

	r.Node, r.Wiring = "node-of-the-record", status.Wiring{Layout: "direct", Backend: "ebpf", Mode: "shared", Uplink: "nosuch0", Bridge: "brnosuch0"}

	r.Paths = status.Paths{PinDir: pins, OVSDB: "unix:" + runDir + "/db.sock", OVSRunDir: runDir, OVNRunDir: runDir, Metrics: "127.0.0.1:1", CNISocket: runDir + "/cni.sock"}
	if err := status.Write(runDir, r); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(file, []byte("[default]\nrun-dir="+runDir+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	said := func(args ...string) string {
		var out bytes.Buffer

		err := run(t.Context(), args, &out, &out)
		exitCode(err, &out)

		return out.String()
	}
	pinTools := [][]string{
		{"gateway", "counters"},
		{"gateway", "explain", "icmp", "203.0.113.9", "192.0.2.10"},
		{"gateway", "monitor"},
		{"gateway", "top", "-once"},
	}

	for from, set := range map[string]func(*testing.T){
		"environment": func(t *testing.T) { t.Setenv("OVNKUBE_RUN_DIR", runDir) },
		"file":        func(t *testing.T) { t.Setenv("OVNKUBE_CONFIG_FILE", file) },
	} {
		t.Run(from, func(t *testing.T) {
			set(t)

			for _, args := range pinTools {
				if got := said(args...); !strings.Contains(got, pins) {
					t.Errorf("%v: the record's pins are not used: %s", args, got)
				}

				if got := said(append(args[:2:2], append([]string{"-pin-dir", "/other/pins"}, args[2:]...)...)...); !strings.Contains(got, "/other/pins") {
					t.Errorf("%v: --pin-dir has no effect: %s", args, got)
				}
			}

			if got := said("status"); strings.Contains(got, "no agent has run") || !strings.Contains(got, "broken") {
				t.Errorf("status: the record is not read: %s", got)
			}
		})
	}

	t.Run("pins in the environment", func(t *testing.T) {
		t.Setenv("OVNKUBE_RUN_DIR", runDir)
		t.Setenv("OVNKUBE_PIN_DIR", "/pins/of/the/environment")

		for _, args := range pinTools {
			if got := said(args...); !strings.Contains(got, "/pins/of/the/environment") {
				t.Errorf("%v: %s", args, got)
			}
		}
	})
}
