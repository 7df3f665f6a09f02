package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bench/live"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline/commandtest"
)

// TestMeasures measures over loopback, by the command's two ends.
func TestMeasures(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())

	serving, done := make(said, 10), make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"serve", "--peer", "127.0.0.1", "--listen", "127.0.0.1", "--port", "17117", "--for", "1m"}, serving, serving)
	}()

	select {
	case line := <-serving:
		if line != "serving 127.0.0.1 at 127.0.0.1:17117 for 1m0s\n" {
			t.Errorf("said %q", line)
		}
	case err := <-done:
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "rows.json")

	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"run", "--yes", "--seconds", "1", "--limit", "50", "--port", "17117", "--json", path, "127.0.0.1"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var rows []live.Row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}

	if len(rows) != len(live.Tests()) || stdout.String() != live.Report(rows) {
		t.Errorf("%d rows, report:\n%s", len(rows), stdout.String())
	}

	cancel()

	if err := <-done; err != nil {
		t.Error(err)
	}
}

// said is a writer whose writes can be waited for.
type said chan string

func (l said) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// Without a confirmation, no packets are sent and the node is not changed.
func TestAsks(t *testing.T) {
	for _, answer := range []string{"", "\n", "n\n", "maybe\n"} {
		var stdout bytes.Buffer

		r := measuring{Options: live.Options{Seconds: 1, Limit: 10}, rounds: 1}

		err := r.run(t.Context(), strings.NewReader(answer), &stdout, &stdout)
		if err == nil || !strings.Contains(err.Error(), "not confirmed") || !strings.Contains(stdout.String(), "up to 10 Mbit/s") {
			t.Errorf("answer %q: %v, after:\n%s", answer, err, stdout.String())
		}
	}
}

// It does not switch to a backend if it cannot switch back.
func TestBackends(t *testing.T) {
	dir := t.TempDir()

	var record status.Record

	record.Wiring = status.Wiring{Layout: "bridged", Backend: "openflow", Mode: "shared", Uplink: "nosuch0", Bridge: "brnosuch0"}

	record.Paths = status.Paths{PinDir: dir, OVSDB: "unix:" + dir + "/db.sock", OVSRunDir: dir, OVNRunDir: dir, Metrics: "127.0.0.1:1", CNISocket: dir + "/cni.sock"}
	if err := status.Write(dir, record); err != nil {
		t.Fatal(err)
	}

	for want, args := range map[string][]string{
		"no --switch":                          {"--backends", "ebpf,openflow"},
		`the agent has the backend "openflow"`: {"--backends", "ebpf,openflow", "--switch", "false"},
		"the gateway is broken":                {"--backends", "openflow,ebpf", "--switch", "false"},
	} {
		var out bytes.Buffer

		err := run(t.Context(), append(append([]string{"run", "--yes", "--run-dir", dir}, args...), "127.0.0.1"), &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %v", args, want, err)
		}
	}

	t.Setenv("OVNKUBE_RUN_DIR", dir)

	var out bytes.Buffer

	err := run(t.Context(), []string{"run", "--backends", "ebpf,openflow", "--switch", "false", "127.0.0.1"}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), `the agent has the backend "openflow"`) {
		t.Errorf("the record of $OVNKUBE_RUN_DIR is not read: %v", err)
	}
	// A command without effect is detected.
	r := measuring{command: "true", records: dir}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	if err := r.switchTo(ctx, "ebpf"); err == nil || !strings.Contains(err.Error(), `still has "openflow"`) {
		t.Errorf("switched by a command that does nothing: %v", err)
	}
}

func TestHelp(t *testing.T) { commandtest.Help(t, root) }

// Every command in a document exists.
func TestDocuments(t *testing.T) {
	if typed := commandtest.Documents(t, "../../..", commandtest.Program{Names: "ovnbench", Root: root}); typed < 3 {
		t.Errorf("%d commands in the documents: are they still found?", typed)
	}
}
