package ovs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// TestControllerConnected queries a real ovn-controller, first without and then with a southbound
// database.
func TestControllerConnected(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	if is, err := ControllerConnected(t.Context(), s.Dir); is || err != nil {
		t.Errorf("without ovn-controller: %t, %v", is, err)
	}

	sb := "unix:" + s.Dir + "/sb.sock"
	s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:system-id=n1", "external_ids:ovn-remote="+sb,
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=127.0.0.1", "external_ids:ovn-remote-probe-interval=0")
	run(t, s, "ovn-controller", "--no-chdir", "--pidfile="+s.Dir+"/ovn-controller.pid", "-vconsole:off", s.Address)
	testnode.Eventually(t, "ovn-controller answers", func() error {
		if _, err := os.Stat(s.Dir + "/ovn-controller.pid"); err != nil {
			return err
		}

		is, err := ControllerConnected(t.Context(), s.Dir)
		if is {
			t.Error("connected to a database that is not there")
		}

		return err
	})
	testnode.Run(t, "ovsdb-tool", "create", s.Dir+"/sb.db", platform.OVNFile("ovn-sb.ovsschema"))
	run(t, s, "ovsdb-server", "-vconsole:off", "--unixctl="+s.Dir+"/sb.ctl", "--remote=p"+sb, s.Dir+"/sb.db")
	testnode.Eventually(t, "connected", func() error {
		is, err := ControllerConnected(t.Context(), s.Dir)
		if err == nil && !is {
			err = errors.New("not connected")
		}

		return err
	})

	if _, err := unixctl(t.Context(), s.Dir+"/ovsdb.ctl", "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a command that does not exist: %v", err)
	}
}

// run starts a daemon that ends with the test.
func run(t *testing.T, s *testnode.Switch, argv ...string) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+s.Dir, "OVS_RUNDIR="+s.Dir)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}

	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
}
