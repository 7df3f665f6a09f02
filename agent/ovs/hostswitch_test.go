package ovs

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestHostSwitchAddBridge checks that a new bridge for the host has no fail mode, so that it
// forwards before it has flows. An existing bridge keeps its fail mode, datapath and owner.
func TestHostSwitchAddBridge(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	s.Vsctl(t, "add-br", "theirs", "--", "set-fail-mode", "theirs", "secure")
	sw := HostSwitch{Client: dial(t, s), DatapathType: "netdev"}

	for _, mac := range []string{"02:00:00:00:00:06", "02:00:00:00:00:07"} {
		for name, want := range map[string]string{
			"ours":   "[]\nnetdev\n{ovn-ebpf-nics-to-bridge=\"true\"}\n\"" + mac + "\"\n1400\n",
			"theirs": "secure\n\"\"\n{}\n\"" + mac + "\"\n1400\n",
		} {
			if err := sw.AddBridge(t.Context(), name, mac, 1400); err != nil {
				t.Fatal(err)
			}

			got := s.Vsctl(t, "get", "bridge", name, "fail_mode", "datapath_type", "external_ids", "other_config:hwaddr") +
				s.Vsctl(t, "get", "interface", name, "mtu_request")
			if got != want {
				t.Errorf("bridge %s: got %q, want %q", name, got, want)
			}
		}
	}
}
