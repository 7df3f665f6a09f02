package gateway

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// Only the record separates the agent's ports from an operator's, so it is replaced, never written
// in place.
func TestReservedPortsRecordIsReplaced(t *testing.T) {
	before, err := link.ReadSysctl(reservedSysctl)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = link.WriteSysctl(reservedSysctl, before+"\n") })

	const had = "" // whatever tests before have reserved

	if err := link.WriteSysctl(reservedSysctl, "\n"); err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := reservePorts(dir, []cluster.PortRange{{First: 50000, Last: 50010}}); err != nil {
		t.Fatal(err)
	}

	reader, err := os.Open(filepath.Join(dir, reservedRecord))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	if err := reservePorts(dir, []cluster.PortRange{{First: 50000, Last: 50010}, {First: 52000, Last: 52010}}); err != nil {
		t.Fatal(err)
	}

	if got, err := io.ReadAll(reader); err != nil || string(got) != "50000-50010\n" {
		t.Errorf("the record of before was written to: %q, %v", got, err)
	}

	if err := releasePorts(dir); err != nil {
		t.Fatal(err)
	}

	if now, _ := link.ReadSysctl(reservedSysctl); strings.TrimSpace(now) != had {
		t.Errorf("reserved ports %q, before %q", now, had)
	}
}
