package ovs

import (
	"errors"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

var errNotYet = errors.New("not yet")

// TestRefusedChassis: while another node keeps the system-id, ovn-controller has no southbound
// database. Then it gets back the configured one, or that of an operator.
func TestRefusedChassis(t *testing.T) {
	for name, tt := range map[string]struct{ before, configured, want string }{
		"configured":    {"", "tcp:172.30.0.1:6642", "tcp:172.30.0.1:6642"},
		"of operator":   {"tcp:172.30.0.9:6642", "", "tcp:172.30.0.9:6642"},
		"both":          {"tcp:172.30.0.9:6642", "tcp:172.30.0.1:6642", "tcp:172.30.0.1:6642"},
		"none has been": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := testnode.StartSwitch(t, false)

			c := dial(t, s)
			if tt.before != "" {
				s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote="+tt.before)
				testnode.Eventually(t, "the client's copy", func() error {
					ids, err := c.ExternalIDs(t.Context())
					if err == nil && ids["ovn-remote"] != tt.before {
						err = errNotYet
					}

					return err
				})
			}

			sync := func(refused bool, wantRemote string) {
				t.Helper()

				id, err := c.SyncSettings(t.Context(), Settings{Remote: tt.configured, EncapIP: "10.0.0.2", DatapathType: "netdev", Hostname: "node1", SystemID: "node1", Refused: refused})
				if err != nil || id != "node1" {
					t.Fatalf("system-id %q, %v", id, err)
				}

				testnode.Eventually(t, "the client's copy of what was written", func() error {
					_, is, err := c.Chassis(t.Context(), "")
					if err == nil && is != refused {
						err = errNotYet
					}

					return err
				})

				ids, err := c.ExternalIDs(t.Context())
				if err != nil || ids["ovn-remote"] != wantRemote {
					t.Errorf("refused %t: ovn-remote %q, %v; want %q", refused, ids["ovn-remote"], err, wantRemote)
				}
			}
			sync(true, "")
			sync(true, "")
			sync(false, tt.want)
			sync(true, "")

			if err := c.RestoreSettings(t.Context()); err != nil {
				t.Fatal(err)
			}

			testnode.Eventually(t, "settings restored", func() error {
				ids, err := c.ExternalIDs(t.Context())
				if _, marked := ids[refusedKey]; err == nil && (marked || ids["ovn-remote"] != tt.before) {
					err = errNotYet
				}

				return err
			})
		})
	}
}
