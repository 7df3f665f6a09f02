package gateway

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// TestKeepIdleConnections checks that the timeout becomes that of established connections, also after
// an operator has changed it, and that the last value which is not the agent's comes back.
func TestKeepIdleConnections(t *testing.T) {
	established, err := link.ReadSysctl(establishedSysctl)
	if err != nil {
		t.Fatal(err)
	}

	before, err := link.ReadSysctl(unacknowledgedSysctl)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = link.WriteSysctl(unacknowledgedSysctl, before) })

	dir := filepath.Join(t.TempDir(), "run")
	expect := func(step, want string) {
		t.Helper()

		if now, err := link.ReadSysctl(unacknowledgedSysctl); err != nil || now != want {
			t.Errorf("%s: the timeout is %s, %v, want %s", step, now, err, want)
		}
	}
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	must(releaseIdleConnections(dir)) // nothing was changed
	must(link.WriteSysctl(unacknowledgedSysctl, "300"))
	must(keepIdleConnections(dir))
	expect("kept", established)
	must(keepIdleConnections(dir)) // the record has the operator's value still
	must(releaseIdleConnections(dir))
	expect("released", "300")

	must(keepIdleConnections(dir))
	must(link.WriteSysctl(unacknowledgedSysctl, "123"))
	must(keepIdleConnections(dir))
	expect("kept again", established)
	must(releaseIdleConnections(dir))
	expect("released again", "123")

	if _, err := os.Stat(filepath.Join(dir, idleRecord)); !os.IsNotExist(err) {
		t.Errorf("the record is still there: %v", err)
	}
}
