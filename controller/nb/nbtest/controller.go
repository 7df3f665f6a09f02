package nbtest

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Controller is a node of an OVN: an ovn-controller with an Open vSwitch. Its datapath is of type
// dummy, which forwards no packets and needs no kernel module.
type Controller struct {
	t       testing.TB
	ovn     *OVN
	dir     string  // run directory of Open vSwitch
	vswitch *Server // the Open_vSwitch database
}

// StartController runs the daemons of a node until the end of the test, in a network namespace of
// their own. It registers the node with the Southbound database.
func (o *OVN) StartController(t testing.TB, node string) *Controller {
	t.Helper()
	c := &Controller{t: t, ovn: o, vswitch: start(t, platform.OVSFile("vswitch.ovsschema"))}
	c.dir = c.vswitch.dir
	c.Vsctl("init")
	c.Vsctl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=dummy", "fail_mode=secure",
		"--", "set", "Open_vSwitch", ".", "external_ids:system-id="+node,
		"external_ids:ovn-remote="+o.southbound.Endpoint, "external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip=127.0.0.1")
	c.run("ovs-vswitchd", c.vswitch.Endpoint, "--enable-dummy=override", "--disable-system",
		"--unixctl="+c.vswitch.path("vswitchd.ctl"))
	c.run("ovn-controller", c.vswitch.Endpoint) // OVN 23.03 has no option --unixctl for it
	Eventually(t, "ovn-controller registers its node",
		func() bool { return strings.Contains(o.Chassis(), node) })

	return c
}

// run starts a daemon of the node, which runs until the end of the test.
func (c *Controller) run(name string, args ...string) {
	c.t.Helper()

	cmd := exec.Command(name, append(args, "-vconsole:off", "-vsyslog:off", "-vfile:off")...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+c.dir, "OVN_RUNDIR="+c.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}

	if err := cmd.Start(); err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}

	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has exited already
		_ = cmd.Wait()         // fails because it was killed
	})
}

// Vsctl changes the node's Open vSwitch. It does not wait for ovs-vswitchd.
func (c *Controller) Vsctl(args ...string) {
	c.t.Helper()

	args = append([]string{"--db=" + c.vswitch.Endpoint, "--no-wait", "--timeout=60"}, args...)
	if out, err := exec.Command("ovs-vsctl", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
}

// Bind adds an interface for the logical port of a pod with that UID, and waits until the port is
// up.
func (c *Controller) Bind(port, uid, iface string) {
	c.t.Helper()
	c.Vsctl("add-port", "br-int", iface, "--", "set", "Interface", iface, "type=dummy",
		"external_ids:iface-id="+port, "external_ids:iface-id-ver="+uid)
	c.ovn.Nbctl("--timeout=60", "wait-until", "Logical_Switch_Port", port, "up=true")
}

// flowCount finds the number of flows in the output of "ovs-ofctl dump-aggregate".
var flowCount = regexp.MustCompile(`flow_count=(\d+)`)

// Flows returns the number of OpenFlow flows of the node once ovn-controller has processed the
// Northbound database.
func (c *Controller) Flows() int {
	c.t.Helper()
	c.ovn.Nbctl("--wait=hv", "--timeout=60", "sync")

	n, last := 0, -1

	Eventually(c.t, "the flows stay the same", func() bool {
		bridge := "unix:" + c.vswitch.path("br-int.mgmt")
		out, err := exec.Command("ovs-ofctl", "dump-aggregate", bridge).CombinedOutput()

		found := flowCount.FindSubmatch(out)
		if err != nil || found == nil {
			return false
		}

		last = n
		n, err = strconv.Atoi(string(found[1]))

		return err == nil && n > 0 && n == last
	})

	return n
}

// Groups returns the OpenFlow groups of the node, as ovs-ofctl prints them in that version of the
// protocol.
func (c *Controller) Groups(version string) string {
	c.t.Helper()

	bridge := "unix:" + c.vswitch.path("br-int.mgmt")

	out, err := exec.Command("ovs-ofctl", "--protocols="+version, "dump-groups", bridge).CombinedOutput()
	if err != nil {
		c.t.Fatalf("groups of the node in %s: %v: %s", version, err, out)
	}

	return string(out)
}
