package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testNestedMode changes the mode of vm2. An agent of the other mode refuses to start there until the
// node is cleaned up, also if the node is configured for the new mode by then.
func testNestedMode(t *testing.T, n *nested) {
	vm := n.VM(2)
	if err := n.StopAgent(2, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	ovnkube := func(args ...string) string {
		out, _ := n.Typed(t.Context(), vm.Name, append([]string{"ovnkube"}, args...)...) // its text is checked
		return out
	}

	out := ovnkube("agent", "--mode", "overlay", "--kubeconfig", n.Kubeconfig(), "--metrics-bind-address", "")
	if want := "the node is in underlay mode: first run 'ovnkube agent --cleanup'"; !strings.Contains(out, want) {
		t.Errorf("the agent of overlay mode says %q, want %q", out, want)
	}

	if out := ovnkube("underlay", "pool"); !strings.Contains(out, "node vm2: 13 ports") {
		t.Errorf("the refused agent has changed the record of the node: %s", out)
	}

	out = ovnkube("agent", "--mode", "overlay", "--kubeconfig", n.Kubeconfig(), "--cleanup")
	if left := nestedRemains(t, n, vm); left != "" {
		t.Errorf("cleanup says %q and leaves %s", out, left)
	}

	if out := ovnkube("underlay", "pool"); !strings.Contains(out, "no agent has run on this node") {
		t.Errorf("after the cleanup, the pool is %q", out)
	}
}

// nestedRemains returns what an agent has left on a VM: devices of pods, pins, records.
func nestedRemains(t *testing.T, n *nested, vm *lab.VM) string {
	t.Helper()

	var left []string

	for line := range strings.Lines(n.execute(t, vm.Name, "ip", "-br", "link")) {
		if strings.HasPrefix(line, "veth") {
			left = append(left, strings.Fields(line)[0])
		}
	}

	for _, pattern := range []string{vm.PinDir + "/*", vm.RunDir + "/pods/*", vm.RunDir + "/*.json", vm.CNIConfDir + "/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}

		left = append(left, files...)
	}

	return strings.Join(left, " ")
}
