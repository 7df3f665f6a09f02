package agent

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// fault is one fault and its repair.
type fault struct {
	name         string
	break_, mend func(t *testing.T)
	check, say   string // the check that must be broken, and part of its text
}

// TestStatusNamesFault breaks a healthy node in one way after another; status names each fault. The
// agent is stopped, as it would repair them. TestFaultFailsOwnCheck covers degraded states.
func TestStatusNamesFault(t *testing.T) {
	r := newRig(t)
	r.cfg.CgroupPath = mountCgroup(t)
	southbound := startSouthbound(t, r)
	r.start()
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	controller := startController(t, r)
	r.awaitMissing("ovn-controller has not installed")
	r.installed(management.Name)
	r.awaitMissing("")

	aborts := testnode.AvoidedZeroSNAT(t) == "false" // before Open vSwitch 3.3
	testnode.Eventually(t, "all is right", func() error {
		got, warned := r.status(t), false
		for _, c := range got.Checks {
			warns := c.Name == "environment" && strings.Contains(c.Detail, "any pod can abort ovs-vswitchd")
			if warned = warned || warns; c.State != status.Right && !warns {
				return &unexpected{got}
			}
		}

		if warned != aborts {
			return &unexpected{got}
		}

		return nil
	})

	r.stop()

	if got := r.status(t); got.State != status.Broken || !said(got, "agent", status.Degraded, "does not answer") || !said(got, "cni", status.Broken, "no pod starts") {
		t.Errorf("agent dead: %+v", got.Checks)
	}

	for _, f := range r.faults(t, southbound, controller) {
		whole := t.Run(f.name, func(t *testing.T) {
			r.t = t // an agent for repair ends with the subtest
			f.break_(t)

			var got status.Report

			testnode.Eventually(t, "fault is seen", func() error {
				if got = r.status(t); !said(got, f.check, status.Broken, f.say) {
					return &unexpected{got}
				}

				return nil
			})

			for _, c := range got.Checks {
				if c.State != status.Right && c.Do == "" {
					t.Errorf("%s gives no advice: %s", c.Name, c.Detail)
				}
			}

			f.mend(t)
			testnode.Eventually(t, "fault is gone", func() error {
				if got := r.status(t); !said(got, f.check, status.Right, "") {
					return &unexpected{got}
				}

				return nil
			})
		})
		if !whole {
			t.FailNow() // the next subtest would start with this fault
		}
	}
}

type unexpected struct{ status.Report }

func (u *unexpected) Error() string {
	var b strings.Builder

	_ = u.Print(&b)

	return b.String()
}

func said(r status.Report, check string, state status.State, words string) bool {
	for _, c := range r.Checks {
		if c.Name == check && c.State == state && strings.Contains(c.Detail, words) {
			return true
		}
	}

	return false
}

func (r *rig) status(t *testing.T) status.Report {
	t.Helper()

	record, err := status.Read(r.cfg.RunDir)
	if err != nil {
		t.Fatal(err)
	}

	return status.Judge(status.Look(context.Background(), record))
}

// faults returns the faults in an order in which each one leaves the node as it found it. Daemons
// started by a fault live until the last one.
func (r *rig) faults(all *testing.T, southbound, controller *daemon) []fault {
	run := func(argv ...string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); testnode.Run(t, argv...) }
	}
	vsctl := func(args ...string) func(*testing.T) {
		return run(append([]string{"ovs-vsctl", "--db=" + r.sw.Address, "--no-wait"}, args...)...)
	}

	mac := ""
	if d, err := net.InterfaceByName("eth0"); err == nil {
		mac = d.HardwareAddr.String()
	}

	const reserved = "/proc/sys/net/ipv4/ip_local_reserved_ports"

	write := func(text string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.WriteFile(reserved, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	confList := filepath.Join(r.cfg.CNIConfDir, cniconf.File)
	flannel := filepath.Join(r.cfg.CNIConfDir, "10-flannel.conflist")
	breth0 := "unix:" + r.sw.Dir + "/breth0.mgmt"

	return []fault{
		{"bridge down", run("ip", "link", "set", "breth0", "down"), run("ip", "link", "set", "breth0", "up"), "bridge", "breth0 is down"},
		{"mapping lost", vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings"), vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=physnet:breth0"), "bridge", "OVN is not connected to it"},
		{"MAC of the uplink", run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:99"), run("ip", "link", "set", "eth0", "address", mac), "bridge", "its uplink 02:00:00:00:00:99"},
		{"uplink in a foreign bridge", vsctl("add-br", "foreign", "--", "add-port", "foreign", "eth0"), vsctl("del-br", "foreign"), "bridge", "eth0 is a port of foreign"},
		{"ports not reserved", write("\n"), write("30000-32767,49152-65535"), "ports", "30000-32767,49152-65535 are not reserved"},
		{"uplink without address", run("ip", "addr", "del", "172.30.0.11/24", "dev", "eth0"), run("sh", "-c", "ip addr add 172.30.0.11/24 dev eth0 && ip route add default via 172.30.0.200"), "uplink", "eth0 has no address"},
		{"uplink down", run("ip", "link", "set", "eth0", "down"), run("sh", "-c", "ip link set eth0 up && ip route add default via 172.30.0.200"), "uplink", "eth0 is down"},
		{"tunnels' address", vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-encap-ip=192.0.2.99"), vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-encap-ip=172.30.1.11"), "ovn", "192.0.2.99 (ovn-encap-ip) is not this node's"},
		{"southbound gone", southbound.kill, southbound.start, "ovn", "is not connected to"},
		{"ovn-controller stopped", controller.kill, controller.start, "ovn", "ovn-controller"},
		{"management port down", run("ip", "link", "set", management.Name, "down"), run("ip", "link", "set", management.Name, "up"), "management", "is down"},
		{"ovsdb-server stopped", func(*testing.T) { r.sw.KillServer() }, func(*testing.T) { r.sw.StartServer(all) }, "ovsdb", "connect to OVSDB"},
		{"no CNI socket", func(*testing.T) {}, r.again, "cni", "no pod starts"},
		{"no conflist", func(t *testing.T) {
			if err := os.Remove(confList); err != nil {
				t.Fatal(err)
			}
		}, r.again, "cni", "the runtime has no configuration"},
		{"another network's configuration first", func(t *testing.T) {
			if err := os.WriteFile(flannel, []byte(`{"name": "cbr0", "plugins": [{"type": "flannel"}]}`), 0o644); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T) {
			if err := os.Remove(flannel); err != nil {
				t.Fatal(err)
			}

			r.again(t)
		}, "cni", "the runtime takes " + flannel + " (flannel) before " + cniconf.File},
		{"flows deleted", func(t *testing.T) { r.stop(); testnode.Run(t, "ovs-ofctl", "del-flows", breth0) }, r.again, "flows", "has none of the gateway"},
		{"program detached", func(t *testing.T) {
			r.stop()

			if err := os.Remove(r.cfg.PinDir + "/uplink_ingress"); err != nil {
				t.Fatal(err)
			}
		}, r.again, "programs", "not attached: uplink_ingress"},
		{"ovs-vswitchd stopped", func(*testing.T) { r.stop(); r.sw.KillVswitchd() }, func(t *testing.T) { r.sw.StartVswitchd(all); r.again(t) }, "flows", "cannot read them from ovs-vswitchd"},
	}
}

// again starts the agent, which repairs the node.
func (r *rig) again(t *testing.T) {
	t.Helper()
	r.start()
	r.awaitMissing("")
}

func mountCgroup(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal("mount cgroup2:", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })

	return dir
}

// daemon is a process that the test kills and restarts.
type daemon struct {
	argv  []string
	env   []string
	ready string // file that exists when the daemon answers
	cmd   *exec.Cmd
}

func (d *daemon) start(t *testing.T) {
	t.Helper()

	_ = os.Remove(d.ready)
	d.cmd = exec.Command(d.argv[0], d.argv[1:]...)

	d.cmd.Env = append(os.Environ(), d.env...)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, d.argv[0], func() error {
		_, err := os.Stat(d.ready)
		return err
	})
}

func (d *daemon) kill(*testing.T) {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func startSouthbound(t *testing.T, r *rig) *daemon {
	t.Helper()

	db, socket := r.sw.Dir+"/sb.db", r.sw.Dir+"/sb.sock"
	testnode.Run(t, "ovsdb-tool", "create", db, platform.OVNFile("ovn-sb.ovsschema"))
	d := &daemon{argv: []string{"ovsdb-server", "-vconsole:off", "--unixctl=" + r.sw.Dir + "/sb.ctl", "--remote=punix:" + socket, db}, ready: socket}
	d.start(t)
	t.Cleanup(func() { d.kill(t) })
	testnode.Run(t, "ovn-sbctl", "--db=unix:"+socket, "init")
	r.cfg.SBAddress = "unix:" + socket

	return d
}

func startController(t *testing.T, r *rig) *daemon {
	t.Helper()

	pid := r.sw.Dir + "/ovn-controller.pid"
	d := &daemon{
		argv:  []string{"ovn-controller", "-vconsole:off", "--log-file=" + r.sw.Dir + "/ovn-controller.log", "--pidfile=" + pid, r.sw.Address},
		env:   []string{"OVS_RUNDIR=" + r.sw.Dir, "OVN_RUNDIR=" + r.sw.Dir},
		ready: pid,
	}
	d.start(t)
	t.Cleanup(func() { d.kill(t) })

	return d
}
