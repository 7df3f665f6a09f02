package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// A real Northbound database takes the rows of real OVN, and has them.
func TestOVNRows(t *testing.T) {
	dir := t.TempDir()
	db, socket := filepath.Join(dir, "nb.db"), "unix:"+filepath.Join(dir, "nb.sock")
	run := func(stdin string, argv ...string) string {
		t.Helper()

		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(stdin)

		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", argv[0], err, out)
		}

		return string(out)
	}
	run("", "ovsdb-tool", "create", db, platform.OVNFile("ovn-nb.ovsschema"))
	run("", "ovsdb-server", db, "--remote=p"+socket, "--unixctl="+filepath.Join(dir, "ctl"), "--pidfile="+filepath.Join(dir, "pid"), "--detach", "--no-chdir", "-vconsole:off", "-vsyslog:off")
	t.Cleanup(func() { run("", "ovs-appctl", "-t", filepath.Join(dir, "ctl"), "exit") })
	run("ovn-nbctl --db="+socket+" "+strings.Join(ovnRows(":49152-65535"), " -- "), "sh", "-e")

	for table, want := range map[string]int{"Load_Balancer": ovnServices + 1, "NAT": 2, "Logical_Switch": 4, "Logical_Router": 2, "Static_MAC_Binding": 4, "ACL": 8} {
		if got := len(strings.Fields(run("", "ovn-nbctl", "--db="+socket, "--bare", "--columns=_uuid", "list", table))); got != want {
			t.Errorf("%s has %d rows, want %d", table, got, want)
		}
	}

	if got := run("", "ovn-nbctl", "--db="+socket, "--bare", "--columns=external_port_range", "list", "NAT"); strings.Count(got, "49152-65535") != 2 {
		t.Errorf("port ranges of NAT: %q", got)
	}
}

// Open vSwitch parses the flows of ovn-kubernetes' gateway, none twice, and each cookie is in use.
func TestOVNKFlows(t *testing.T) {
	flows := ovnkFlows("2", 1000)
	seen := map[string]bool{}

	for line := range strings.Lines(flows) {
		match, _, _ := strings.Cut(strings.TrimSpace(line), "actions=")
		if _, rest, ok := strings.Cut(match, "cookie="); ok {
			_, match, _ = strings.Cut(rest, ",")
		}

		if match != "" && seen[match] {
			t.Errorf("twice: %s", match)
		}

		seen[match] = true
	}

	cmd := exec.Command("ovs-ofctl", "parse-flows", "-")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(flows, "\t", ""))

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}

	for _, word := range []string{"PATCH", "WIRE", "MAC,", "_MARK", "_="} {
		if strings.Contains(flows, word) {
			t.Errorf("%s is left in the flows", word)
		}
	}

	for cookie := uint64(ovnkFromWire); cookie < ovnkLast; cookie++ {
		if !strings.Contains(flows, fmt.Sprintf("cookie=%d,", cookie)) {
			t.Errorf("no flow has cookie %#x", cookie)
		}
	}
}
