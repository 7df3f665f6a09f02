package ovs

import (
	"fmt"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// TestNullNAT uses a real ovs-vswitchd, which reports its datapath's capabilities at start. The
// capability is hidden where the version needs that, and left alone where it does not.
func TestNullNAT(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	s.Daemon(t)
	s.Vsctl(t, "add-br", "brx", "--", "set", "Bridge", "brx", "datapath_type=netdev")
	s.ReportDatapath(t)
	c := dial(t, s)
	wants := func(what, want string, do func() error) {
		t.Helper()
		testnode.Eventually(t, what, func() error {
			if err := do(); err != nil {
				return err
			}

			if got := s.ZeroSNAT(t); got != want {
				return fmt.Errorf("%s is %q, not %q", zeroSNAT, got, want)
			}

			return nil
		})
	}
	hidden := testnode.AvoidedZeroSNAT(t)
	nothing := func() error { return nil }
	avoid := func() error { return c.AvoidNullNAT(t.Context(), s.Dir) }

	wants("ovs-vswitchd says that it can", "true", nothing)
	wants("it is hidden if need be", hidden, avoid)

	wake := loop.NewSignal()

	stop := c.Watch(func(table, _ string) bool { return table == "Datapath" }, wake)
	defer stop()

	s.KillVswitchd()

	if err := avoid(); err != nil {
		t.Errorf("without ovs-vswitchd: %v", err)
	}

	s.StartVswitchd(t)

	if hidden == "false" { // otherwise the row does not change
		<-wake
	}

	wants("ovs-vswitchd says so again when it starts", "true", nothing)
	wants("it is hidden again if need be", hidden, avoid)
	wants("it is shown", "true", func() error { return c.AllowNullNAT(t.Context()) })
}

func TestParseVersion(t *testing.T) {
	for _, tc := range []struct {
		reply        string
		major, minor int
		ok           bool
	}{
		{"ovs-vswitchd (Open vSwitch) 3.1.0\n", 3, 1, true},
		{"ovs-vswitchd (Open vSwitch) 3.10.90-g12ab\nDPDK 23.11\n", 3, 10, true},
		{"ovs-vswitchd (Open vSwitch) x\n", 0, 0, false},
		{"", 0, 0, false},
	} {
		major, minor, err := parseVersion(tc.reply)
		if major != tc.major || minor != tc.minor || (err == nil) != tc.ok {
			t.Errorf("%q: %d.%d, error %v", tc.reply, major, minor, err)
		}
	}
}
