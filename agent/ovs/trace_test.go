package ovs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestOutputs(t *testing.T) {
	for _, tt := range []struct {
		actions string
		size    int
		want    []string
	}{
		{"drop", 0, nil},
		{"eth0,breth0", 0, []string{"eth0", "breth0"}},
		{"pop_vlan,breth0", 0, []string{"breth0"}},
		{"push_vlan(vid=100,pcp=0),set(skb_mark(0x1)),eth0", 0, []string{"eth0"}},
		{"ct(commit,zone=1,nat(src=1.2.3.4)),recirc(0x1)", 0, nil},
		{"clone(ct(zone=1),eth0),eth1", 0, []string{"eth0", "eth1"}},
		{"check_pkt_len(size=1514,gt(pop_vlan,breth0),le(eth0)),eth2", 1514, []string{"eth0", "eth2"}},
		{"check_pkt_len(size=1514,gt(pop_vlan,breth0),le(eth0)),eth2", 1515, []string{"breth0", "eth2"}},
		{"check_pkt_len(size=9,gt(drop),le(check_pkt_len(size=5,gt(a),le(b))))", 6, []string{"a"}},
	} {
		if got := outputs(tt.actions, tt.size); !slices.Equal(got, tt.want) {
			t.Errorf("%s, %d bytes: %v, want %v", tt.actions, tt.size, got, tt.want)
		}
	}
}

// One connection serves several calls, including failing ones, and ends with its context.
func TestControl(t *testing.T) {
	s := testnode.StartSwitch(t, true)

	c, err := DialControl(t.Context(), s.Dir+"/vswitchd.ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	for range 3 {
		if got, err := c.Call(t.Context(), "version"); err != nil || !strings.Contains(got, "Open vSwitch") {
			t.Errorf("version %q, error %v", got, err)
		}

		if _, err := c.Call(t.Context(), "nosuchcommand", "x"); err == nil || !strings.Contains(err.Error(), "nosuchcommand") {
			t.Errorf("error %v, want one that names the command", err)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := c.Call(ended, "version"); err == nil {
		t.Error("a call after the end of its context")
	}

	if _, err := DialControl(t.Context(), s.Dir+"/none.ctl"); err == nil || !strings.Contains(err.Error(), "none.ctl") {
		t.Errorf("error %v, want one that names the socket", err)
	}
}
