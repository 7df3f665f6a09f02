package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestMain gives the tests their own node. When a mover starts its watchdog, it acts as ovnkube.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == watchdogCommand || os.Getenv(asProgram) != "" {
		main()
	}

	os.Exit(testnode.Main(m))
}

// TestNICsToBridge runs both commands as in the first releases' documents.
func TestNICsToBridge(t *testing.T) {
	sw, before := startHost(t)
	onPeer := []string{"nsenter", "-t", peerPID, "-n"}
	flags := moverFlags(sw)

	util := func(args ...string) (string, int) {
		var stdout, stderr bytes.Buffer

		argv := append([]string{"/usr/bin/ovn-k8s-util", args[0]}, append(slices.Clone(flags), args[1:]...)...)
		err := run(context.Background(), commandArguments(argv), &stdout, &stderr)

		return stderr.String(), exitCode(err, &stderr)
	}
	if out, code := util("nics-to-bridge", "eth0"); code != 0 {
		t.Fatal(code, out)
	}

	if got := sw.Vsctl(t, "list-ports", "breth0"); got != "eth0\n" {
		t.Errorf("ports %q", got)
	}

	if got := testnode.Run(t, "ip", "-o", "-4", "addr", "show", "dev", "breth0"); !strings.Contains(got, "172.30.0.11/24") {
		t.Errorf("breth0 has %s", got)
	}

	testnode.Run(t, append(onPeer, "ping", "-n", "-c1", "-W5", "-q", "172.30.0.11")...)

	if out, code := util("nics-to-bridge", "eth0"); code != 0 {
		t.Error("a repeated move failed:", code, out)
	}

	if out, code := util("bridges-to-nics", "breth0"); code != 0 {
		t.Fatal(code, out)
	}

	testnode.Eventually(t, "as before, when vswitchd has deleted the bridge's device", func() error {
		if got := hostState(t); got != before {
			return fmt.Errorf("before:\n%safter:\n%s", before, got)
		}

		return nil
	})

	if got := sw.Vsctl(t, "list-br"); got != "" {
		t.Errorf("bridges left: %s", got)
	}

	testnode.Run(t, append(onPeer, "ping", "-n", "-c1", "-W5", "-q", "172.30.0.11")...)

	if out, code := util("bridges-to-nics", "brother"); code != 1 {
		t.Errorf("a foreign bridge: %d %s", code, out)
	}

	if out, code := util("nics-to-bridge"); code != 1 {
		t.Errorf("no NIC: %d %s", code, out)
	}
}

// A kernel without openvswitch is reported before any change.
func TestNICsToBridgeWithoutModule(t *testing.T) {
	if link.HasGenericFamily("ovs_datapath") || exec.Command("modprobe", "-n", "openvswitch").Run() == nil {
		t.Skip("the kernel has openvswitch")
	}

	sw, before := startHost(t)
	for _, datapath := range []string{"", "system"} {
		flags := []string{"--ovsdb", sw.Address, "--run-dir", sw.Dir + "/run", "--pin-dir", sw.Dir + "/bpf/node", "--datapath=" + datapath}

		var stdout, stderr bytes.Buffer

		err := run(context.Background(), append(append([]string{"ovn-k8s-util", "nics-to-bridge"}, flags...), "eth0"), &stdout, &stderr)
		if code := exitCode(err, &stderr); code != 1 {
			t.Fatal(code, stderr.String())
		}

		for _, want := range []string{"move eth0 to breth0", "datapath type system", "the kernel has no openvswitch", "load the module", "--datapath netdev"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("datapath %q: does not say %q: %s", datapath, want, stderr.String())
			}
		}

		if got := hostState(t); got != before {
			t.Errorf("before:\n%safter:\n%s", before, got)
		}

		if got := sw.Vsctl(t, "list-br"); got != "" {
			t.Errorf("bridges left: %s", got)
		}

		if left, err := filepath.Glob(sw.Dir + "/run/nic-*"); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// hostState returns the state that must not change.
func hostState(t *testing.T) string {
	t.Helper()

	var b strings.Builder

	for _, argv := range [][]string{{"ip", "-d", "-o", "addr"}, {"ip", "route", "show", "table", "all"}, {"ip", "rule"}, {"ip", "neigh", "show", "nud", "permanent"}} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.SplitSeq(string(out), "\n") {
			if !strings.Contains(line, "ovs-netdev") && !strings.Contains(line, "fe80:") && !strings.Contains(line, "ff00::") {
				b.WriteString(line + "\n")
			}
		}
	}

	return b.String()
}

// A link's name selects the command.
func TestLinkNameSelectsCommand(t *testing.T) {
	for _, tt := range []struct{ argv, want []string }{
		{[]string{"/bin/ovnkube", "agent"}, []string{"agent"}},
		{[]string{filepath.Join("x", "ovn-k8s-util"), "nics-to-bridge", "eth0"}, []string{"ovn-k8s-util", "nics-to-bridge", "eth0"}},
	} {
		if got := commandArguments(tt.argv); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.argv, got, tt.want)
		}
	}
}
