package lab_test

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// After a reboot a node has its database, and no earlier device or process.
func TestReboot(t *testing.T) {
	o := options(t)

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	mustExec(t, l, "node1", "ip", "link", "add", "old0", "type", "veth", "peer", "old1")
	mustExec(t, l, "node1", "ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:kept=yes")

	old, err := l.Spawn("node1", "old", "sleep", "1h")
	if err != nil {
		t.Fatal(err)
	}

	mac := macOf(mustExec(t, l, "node1", "ip", "-o", "link", "show", "eth0"))
	for range 2 {
		if err := l.Reboot(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}

	if now := mustExec(t, l, "node1", "ip", "-o", "link", "show", "eth0"); mac == "" || macOf(now) != mac {
		t.Errorf("the uplink's MAC is not %s any more: %s", mac, now)
	}

	if old.Alive() {
		t.Error("an earlier process runs")
	}

	if out := mustExec(t, l, "node1", "ip", "-o", "link"); strings.Contains(out, "old0") {
		t.Errorf("an earlier device exists: %s", out)
	}

	if out := mustExec(t, l, "node1", "ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:kept"); !strings.Contains(out, "yes") {
		t.Errorf("the database lost its content: %q", out)
	}

	mustExec(t, l, "node1", "ping", "-n", "-c", "1", "-W", "5", l.Node(2).IP4.String())
	mustExec(t, l, "node2", "ping", "-n", "-c", "1", "-W", "5", l.Node(1).IP6.String())
	// Open must find the new processes.
	if _, err := lab.Open(o.Dir); err != nil {
		t.Fatal(err)
	}
}

// macOf reads a line of `ip -o link`.
func macOf(line string) string {
	_, rest, _ := strings.Cut(line, "link/ether ")
	mac, _, _ := strings.Cut(rest, " ")

	return mac
}
