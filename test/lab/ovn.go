package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/vm/clock"
)

const (
	vswitchSchema = "vswitch.ovsschema"
	nbSchema      = "ovn-nb.ovsschema"
	sbSchema      = "ovn-sb.ovsschema"

	nbSocket = "ovnnb_db.sock"
	sbSocket = "ovnsb_db.sock"

	// daemonNice is the scheduling priority that ovs-ctl and ovn-ctl give all daemons by default.
	daemonNice = -10

	// probeInterval keeps a starved machine from dropping slow connections; the default is 5 s.
	// Milliseconds.
	probeInterval = "60000"
)

// daemonEnv points the daemons and tools of OVS and OVN to a run directory.
func daemonEnv(dir string) []string {
	var env []string
	for _, name := range []string{
		"OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVN_RUNDIR", "OVN_DBDIR", "OVN_LOGDIR",
	} {
		env = append(env, name+"="+dir)
	}

	return env
}

// daemon starts a program of OVS or OVN in the host's namespace. Its log is
// <Dir>/log/<host>-<program>.log.
func (l *Lab) daemon(ns, run string, argv ...string) (*process.Process, error) {
	return l.spawnNice(ns, filepath.Base(run)+"-"+argv[0], daemonNice, daemonEnv(run),
		append(argv, "--pidfile", "-vconsole:info", "-vsyslog:off", "-vfile:off")...)
}

// spawn starts a recorded process. Its name must be unique in the lab.
func (l *Lab) spawn(ns, name string, env []string, argv ...string) (*process.Process, error) {
	return l.spawnNice(ns, name, 0, env, argv...)
}

// spawnNice is spawn with a scheduling priority.
func (l *Lab) spawnNice(ns, name string, nice int, env []string, argv ...string) (*process.Process, error) {
	return process.Start(process.Spec{
		Argv: argv, Env: env, Netns: ns, Log: l.path("log/" + name + ".log"), Record: l.record(name), Nice: nice,
	})
}

func (l *Lab) record(name string) string { return l.path("pid/" + name + ".pid") }

// ovsdb starts a database server on a new database and waits until it answers. socket is the file
// name below run.
func (l *Lab) ovsdb(ctx context.Context, ns, run, schema, socket string, args ...string) error {
	db := filepath.Join(run, strings.TrimSuffix(socket, ".sock")+".db")
	if err := l.run(ctx, "ovsdb-tool", "create", db, schema); err != nil {
		return err
	}

	return l.serve(ctx, ns, run, socket, args...)
}

// serve starts a database server on an existing database.
func (l *Lab) serve(ctx context.Context, ns, run, socket string, args ...string) error {
	db := filepath.Join(run, strings.TrimSuffix(socket, ".sock")+".db")
	path := filepath.Join(run, socket)
	argv := append([]string{"ovsdb-server", db, "--remote=punix:" + path}, args...)
	name := filepath.Base(run) + "-" + strings.TrimSuffix(socket, ".sock")
	// Two servers share central's run directory, so their file names must differ.
	argv = append(argv, "--pidfile="+db+".pid", "--unixctl="+db+".ctl", "-vconsole:info", "-vsyslog:off", "-vfile:off")

	p, err := l.spawnNice(ns, name, daemonNice, daemonEnv(run), argv...)
	if err != nil {
		return err
	}

	return p.Await(ctx, name, func() error {
		c, err := net.Dial("unix", path)
		if err != nil {
			return err
		}

		return c.Close()
	})
}

// startCentral starts the two databases and northd.
func (l *Lab) startCentral(ctx context.Context) error {
	run := l.path("central")
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}

	for _, db := range []struct {
		schema, socket, table, tool, address, remote string
		port                                         int
	}{
		{platform.OVNFile(nbSchema), nbSocket, "NB_Global", "ovn-nbctl", l.NBSocket(), "db:OVN_Northbound,NB_Global,connections", nbPort},
		{platform.OVNFile(sbSchema), sbSocket, "SB_Global", "ovn-sbctl", l.SBSocket(), "db:OVN_Southbound,SB_Global,connections", sbPort},
	} {
		if err := l.ovsdb(ctx, l.fabric(), run, db.schema, db.socket, "--remote="+db.remote); err != nil {
			return err
		}

		err := l.run(ctx, db.tool, "--timeout=30", "--db="+db.address, "init", "--",
			"set-connection", fmt.Sprintf("ptcp:%d:0.0.0.0", db.port), "--",
			"set", "Connection", ".", "inactivity_probe="+probeInterval)
		if err != nil {
			return err
		}
	}

	_, err := l.daemon(l.fabric(), run, "ovn-northd", "--ovnnb-db="+l.NBSocket(), "--ovnsb-db="+l.SBSocket())

	return err
}

// startNode creates a node's network and starts its daemons, unless machines are blank.
// ovn-controller is idle until ovn-remote is set.
func (l *Lab) startNode(ctx context.Context, n *Node) error {
	for _, dir := range []string{n.RunDir, n.PinDir, n.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	if err := l.makeNodeNetwork(n); err != nil {
		return err
	}

	if err := l.sumChecksums(ctx, n.Name, l.opts.Uplink); err != nil {
		return err
	}

	if l.opts.Blank {
		return nil
	}

	return l.startSwitch(ctx, n, n.Name)
}

// startSwitch starts a node's Open vSwitch on a new database, and ovn-controller.
func (l *Lab) startSwitch(ctx context.Context, n *Node, systemID string) error {
	if err := l.ovsdb(ctx, n.Netns, n.RunDir, platform.OVSFile(vswitchSchema), "db.sock"); err != nil {
		return err
	}

	settings := []string{
		"external_ids:system-id=" + systemID, "external_ids:rundir=" + n.RunDir,
		"external_ids:ovn-remote-probe-interval=" + probeInterval, "external_ids:ovn-openflow-probe-interval=0",
		"other_config:max-idle=30000",
	}
	if l.opts.NoAgent {
		settings = append(settings, l.settingsWithoutAgent(n)...)
	}

	argv := append([]string{"--timeout=30", "--db=" + n.OVSDB, "--no-wait", "init", "--", "set", "Open_vSwitch", "."}, settings...)
	if err := l.run(ctx, "ovs-vsctl", argv...); err != nil {
		return err
	}
	// The API server starts in the meantime, and takes longer.
	if err := clock.Await(ctx); err != nil {
		return err
	}

	if err := l.startVswitchd(n); err != nil {
		return err
	}

	if l.tagged() {
		if err := l.bridgeTagged(ctx, n); err != nil {
			return err
		}
	}

	if l.opts.VMs > 0 {
		if err := l.bridgeHypervisor(ctx, n); err != nil {
			return err
		}
	}

	return l.startOVNController(n)
}

// startOVNController runs ovn-controller under its own monitor, as distributions do. The monitor
// restarts it after a crash: 25.03.0 has crashed while routes changed.
func (l *Lab) startOVNController(n *Node) error {
	_, err := l.daemon(n.Netns, n.RunDir, "ovn-controller", n.OVSDB, "--monitor")
	return err
}

// settingsWithoutAgent are the minimum for ovn-controller to register a chassis. With them, tunnels
// work on the kernel datapath only.
func (l *Lab) settingsWithoutAgent(n *Node) []string {
	settings := []string{
		"external_ids:hostname=" + n.Name, "external_ids:ovn-remote=" + l.SBAddress(),
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=" + n.IP4.String(),
		"external_ids:ovn-bridge-datapath-type=" + l.opts.Datapath,
	}
	if l.opts.Cloud {
		// Neutron places the router's gateway on such a chassis.
		settings = append(settings, "external_ids:ovn-cms-options=enable-chassis-as-gw")
	}

	return settings
}

// startVswitchd runs ovs-vswitchd under its own monitor, as distributions do. The monitor restarts
// it after a crash: the userspace conntrack of 3.1.0 occasionally fails an assertion, in
// conn_update_state, when OVN commits connections with a NAT without effect.
func (l *Lab) startVswitchd(n *Node) error {
	_, err := l.daemon(n.Netns, n.RunDir, "ovs-vswitchd", n.OVSDB, "--monitor")
	return err
}

// awaitChassis waits until every node is in the Southbound database.
func (l *Lab) awaitChassis(ctx context.Context) error {
	for _, n := range l.Nodes() {
		if err := l.run(ctx, "ovn-sbctl", "--timeout=60", "--db="+l.SBSocket(), "wait-until", "Chassis", n.Name); err != nil {
			return fmt.Errorf("wait for chassis %s: %w", n.Name, err)
		}
	}

	return nil
}

// run runs a tool in the caller's namespace. The tool is killed with the caller, as Down cannot
// find it by a namespace.
func (l *Lab) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The kernel sends the signal when the forking thread ends, so keep other goroutines from
	// ending it.
	runtime.LockOSThread()

	defer runtime.UnlockOSThread()

	_, err := output(cmd)

	return err
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer

	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}

		return stdout.Bytes(), fmt.Errorf("run %s: %w", strings.Join(cmd.Args, " "), err)
	}

	return stdout.Bytes(), nil
}
