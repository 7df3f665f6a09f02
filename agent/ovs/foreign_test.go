package ovs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestCheckGateway is about a node that ovn-kubernetes or an operator has made
// bridges on.
func TestCheckGateway(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	s.Vsctl(t, "add-br", "breth0", "--", "add-port", "breth0", "eth0")
	s.Vsctl(t, "add-br", "breth1", "--", "add-port", "breth1", "patch-breth1_n-to-br-int", "--",
		"set", "Interface", "patch-breth1_n-to-br-int", "type=patch")
	s.Vsctl(t, "add-br", "breth2", "--", "add-bond", "breth2", "bond0", "eth4", "eth5")
	testnode.Eventually(t, "the client has seen the bridges", func() error {
		if b, err := c.bridge(t.Context(), "breth2"); err != nil || b == nil || len(b.Ports) != 2 {
			return fmt.Errorf("bridge %v, error %w", b, err)
		}
		return nil
	})
	for _, tc := range []struct{ name, uplink, bridge, want string }{
		{"ours, with its patch port", "eth1", "breth1", ""},
		{"no such bridge yet", "eth3", "breth3", ""},
		{"NIC in its bridge", "eth0", "breth0", "uplink eth0 is a port of OVS bridge breth0"},
		{"default route on the bridge", "breth0", "brbreth0", "uplink breth0 is a port of OVS bridge breth0"},
		{"another NIC in the bridge", "eth2", "breth0", "OVS bridge breth0 has the port eth0"},
		{"member of a bond in OVS", "eth4", "breth4", "uplink eth4 is a port of OVS bridge breth2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := c.CheckGateway(t.Context(), tc.uplink, tc.bridge)
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
