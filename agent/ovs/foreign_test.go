package ovs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestCheckGateway covers a node with bridges of ovn-kubernetes or an operator.
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

// TestCheckMember covers layouts with the uplink in the bridge.
func TestCheckMember(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	s.Vsctl(t, "add-br", "breth0", "--", "add-port", "breth0", "eth0", "--", "add-port", "breth0", "patch0", "--", "set", "Interface", "patch0", "type=patch")
	s.Vsctl(t, "add-br", "breth1", "--", "add-port", "breth1", "eth1", "--", "add-port", "breth1", "tap1", "--", "set", "Interface", "tap1", "type=internal")
	s.Vsctl(t, "add-br", "br-ex", "--", "br-set-external-id", "br-ex", "bridge-uplink", "ens3", "--", "add-bond", "br-ex", "bond0", "eth4", "eth5")
	testnode.Eventually(t, "the client has seen the bridges", func() error {
		if b, err := c.bridge(t.Context(), "br-ex"); err != nil || b == nil || len(b.Ports) != 2 {
			return fmt.Errorf("bridge %v, error %w", b, err)
		}

		return nil
	})

	for _, tc := range []struct {
		name, uplink, bridge string
		is                   bool
		want                 string
	}{
		{"a port", "eth0", "breth0", true, ""},
		{"none yet", "eth3", "breth3", false, ""},
		{"with a foreign port", "eth1", "breth1", false, "OVS bridge breth1 has the port tap1"},
		{"of another bridge", "eth0", "brother", false, "uplink eth0 is a port of OVS bridge breth0"},
		{"member of a bond in OVS", "eth4", "br-ex", false, "OVS bridge br-ex has the port bond0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			is, err := c.CheckMember(t.Context(), tc.uplink, tc.bridge)
			if is != tc.is || tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %t, %v, want %t, %q", is, err, tc.is, tc.want)
			}
		})
	}

	for _, tc := range []struct{ device, bridge, uplink string }{
		{"breth0", "breth0", "eth0"}, {"eth0", "breth0", "eth0"}, {"br-ex", "br-ex", "ens3"}, {"eth9", "", ""},
	} {
		if bridge, uplink, err := c.GatewayBridge(t.Context(), tc.device); err != nil || bridge != tc.bridge || uplink != tc.uplink {
			t.Errorf("%s: bridge %q, uplink %q, error %v; want %q and %q", tc.device, bridge, uplink, err, tc.bridge, tc.uplink)
		}
	}

	s.Vsctl(t, "del-port", "br-ex", "bond0", "--", "br-set-external-id", "br-ex", "bridge-uplink", "--", "add-port", "br-ex", "a", "--", "add-port", "br-ex", "b")
	testnode.Eventually(t, "two candidates", func() error {
		if _, _, err := c.GatewayBridge(t.Context(), "br-ex"); err == nil || !strings.Contains(err.Error(), `2 candidates for its uplink, ["a" "b"]`) {
			return fmt.Errorf("got %w", err)
		}

		return nil
	})

	for range 2 {
		if err := c.SyncBridge(t.Context(), Bridge{Name: "breth7", Uplink: "eth7", FailMode: FailStandalone}); err != nil {
			t.Fatal(err)
		}
	}

	if got := s.Vsctl(t, "list-ports", "breth7") + s.Vsctl(t, "br-get-external-id", "breth7", "bridge-uplink") + s.Vsctl(t, "get-fail-mode", "breth7"); got != "eth7\neth7\nstandalone\n" {
		t.Errorf("port, uplink and fail mode %q", got)
	}
}

// TestPortsComeAndGo adds and removes pods' ports while the bridges are read.
func TestPortsComeAndGo(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	s.Vsctl(t, "add-br", "breth0")

	add, del := []string{"add-br", "br-int"}, []string{}

	for i := range 50 {
		port := fmt.Sprintf("pod%d", i)
		add = append(add, "--", "add-port", "br-int", port)
		del = append(del, "--", "del-port", "br-int", port)
	}

	ctx, stop := context.WithCancel(t.Context())
	read := make(chan error)

	go func() {
		for ctx.Err() == nil {
			if err := c.CheckGateway(t.Context(), "eth0", "breth0"); err != nil {
				read <- err
				return
			}
		}

		read <- nil
	}()

	s.Vsctl(t, add...)

	for range 30 {
		s.Vsctl(t, del[1:]...)
		s.Vsctl(t, add[3:]...)
	}

	stop()

	if err := <-read; err != nil {
		t.Error(err)
	}
}
