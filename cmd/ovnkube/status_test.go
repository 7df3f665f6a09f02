package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// Without a record, the command fails. On a node without any part of the recorded gateway it
// reports broken, on the screen and in JSON. Package agent breaks a real node.
func TestStatusCommand(t *testing.T) {
	dir := t.TempDir()

	look := func(args ...string) (string, int) {
		var stdout, stderr bytes.Buffer

		err := run(context.Background(), append([]string{"status", "--run-dir", dir}, args...), &stdout, &stderr)
		code := exitCode(err, &stderr)

		return stdout.String() + stderr.String(), code
	}
	if out, code := look(); code != 1 || !strings.Contains(out, "no agent has run on this node") {
		t.Errorf("no record: %d, %s", code, out)
	}

	var r status.Record

	r.Node, r.Wiring = "node1", status.Wiring{Layout: "direct", Backend: "ebpf", Mode: "shared", Uplink: "nosuch0", Bridge: "brnosuch0"}
	r.Paths = status.Paths{PinDir: dir, OVSDB: "unix:" + dir + "/db.sock", OVSRunDir: dir, OVNRunDir: dir, Metrics: "127.0.0.1:1", CNISocket: dir + "/cni.sock"}

	r.Ports.First, r.Ports.Last = 49152, 65535
	if err := status.Write(dir, r); err != nil {
		t.Fatal(err)
	}

	if out, code := look(); code != 3 || !strings.HasPrefix(out, "node1: broken\n") || !strings.Contains(out, "device nosuch0: no such device") {
		t.Errorf("nothing there: %d, %s", code, out)
	}

	out, code := look("--json")

	var report struct {
		State  string `json:"state"`
		Checks []struct{ Name, State, Detail, Do string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 3 || report.State != "broken" || len(report.Checks) < 8 {
		t.Errorf("%d, %v, %+v", code, err, report)
	}
}
