package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// realNode is a node of the cluster with a real ovs-vswitchd (userspace datapath) and a real
// ovn-controller. Its network namespace is connected to nothing: only its control plane is
// measured.
type realNode struct {
	dir, netns               string
	db, vswitchd, controller *process.Process // controller: ovn-controller
}

// env points the tools of OVS and OVN to the node's run directory.
func (r *realNode) env() []string {
	var out []string
	for _, name := range []string{"OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVN_RUNDIR", "OVN_DBDIR", "OVN_LOGDIR"} {
		out = append(out, name+"="+r.dir)
	}

	return out
}

func (r *realNode) socket() string { return "unix:" + filepath.Join(r.dir, "db.sock") }

// startRealNode starts the daemons of the named node below dir, as an agent sets them up.
func startRealNode(ctx context.Context, southbound, name, dir string, monitorAll bool) (*realNode, error) {
	r := &realNode{dir: dir, netns: fmt.Sprintf("scale-%d", os.Getpid())}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}

	if err := netns.Create(r.netns); err != nil {
		return nil, err
	}

	if err := r.start(ctx, southbound, name, monitorAll); err != nil {
		return nil, errors.Join(fmt.Errorf("start node: %w", err), r.stop())
	}

	return r, nil
}

func (r *realNode) start(ctx context.Context, southbound, name string, monitorAll bool) (err error) {
	db := filepath.Join(r.dir, "conf.db")
	if _, err := tool(ctx, nil, "ovsdb-tool", "create", db, platform.OVSFile("vswitch.ovsschema")); err != nil {
		return err
	}

	if r.db, err = r.spawn("ovsdb-server", "--remote=p"+r.socket(), db); err != nil {
		return err
	}

	awaitDB := func() error { _, err := r.vsctl(ctx, "--no-wait", "init"); return err }
	if err := r.db.Await(ctx, "ovsdb-server", awaitDB); err != nil {
		return err
	}

	ids := map[string]string{
		"system-id": name, "hostname": name, "ovn-remote": southbound, "ovn-encap-type": "geneve", "ovn-encap-ip": "172.16.0.0",
		"ovn-bridge-datapath-type": "netdev", "ovn-bridge-mappings": "physnet:breth0", "ovn-monitor-all": strconv.FormatBool(monitorAll),
		"ovn-remote-probe-interval": "600000", "ovn-openflow-probe-interval": "0",
	}

	argv := []string{"--no-wait", "add-br", "breth0", "--", "set", "Bridge", "breth0", "datapath_type=netdev", "--", "set", "Open_vSwitch", "."}
	for key, value := range ids {
		argv = append(argv, fmt.Sprintf("external_ids:%s=%q", key, value))
	}

	if _, err := r.vsctl(ctx, argv...); err != nil {
		return err
	}

	if r.vswitchd, err = r.spawn("ovs-vswitchd", r.socket()); err != nil {
		return err
	}

	r.controller, err = r.spawn("ovn-controller", r.socket())

	return err
}

// spawn starts one of the node's daemons in its namespace.
func (r *realNode) spawn(argv ...string) (*process.Process, error) {
	return process.Start(process.Spec{
		Argv: append(argv, "--pidfile", "-vconsole:warn", "-vsyslog:off", "-vfile:off"), Env: r.env(), Netns: r.netns,
		Log: filepath.Join(r.dir, argv[0]+".log"), Tethered: true,
	})
}

func (r *realNode) vsctl(ctx context.Context, argv ...string) (string, error) {
	return tool(ctx, r.env(), append([]string{"ovs-vsctl", "--timeout=300", "--db=" + r.socket()}, argv...)...)
}

func (r *realNode) appctl(ctx context.Context, argv ...string) (string, error) {
	return tool(ctx, r.env(), append([]string{"ovn-appctl", "-t", "ovn-controller"}, argv...)...)
}

// flows returns the number of OpenFlow flows of br-int.
func (r *realNode) flows(ctx context.Context) (int, error) {
	text, err := tool(ctx, r.env(), "ovs-ofctl", "-O", "OpenFlow15", "dump-aggregate", "br-int")
	if err != nil {
		return 0, err
	}

	m := regexp.MustCompile(`flow_count=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("count flows: no flow_count in %q", text)
	}

	return strconv.Atoi(m[1])
}

// recompute makes ovn-controller compute all flows again, and returns the duration that
// ovn-controller reports. settle waits until the node has nothing left to do.
func (r *realNode) recompute(ctx context.Context, settle func() error) (time.Duration, error) {
	if _, err := r.appctl(ctx, "stopwatch/reset"); err != nil {
		return 0, err
	}

	if _, err := r.appctl(ctx, "inc-engine/recompute"); err != nil {
		return 0, err
	}

	if err := settle(); err != nil {
		return 0, err
	}

	text, err := r.appctl(ctx, "stopwatch/show", "flow-generation")
	if err != nil {
		return 0, err
	}

	m := regexp.MustCompile(`Maximum: (\d+) msec`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("measure recompute: no maximum in %q", text)
	}

	ms, err := strconv.Atoi(m[1])

	return time.Duration(ms) * time.Millisecond, err
}

// plug adds a pod's interface to br-int, as the agent does when the pod has addresses.
func (r *realNode) plug(ctx context.Context, device, port, uid string) error {
	_, err := r.vsctl(ctx, "--no-wait", "add-port", "br-int", device, "--", "set", "Interface", device, "type=internal",
		"external_ids:iface-id="+port, "external_ids:iface-id-ver="+uid)

	return err
}

// installed waits until ovn-controller reports that all flows of the interface are installed, and
// returns the time of that report.
func (r *realNode) installed(ctx context.Context, device string) (time.Time, error) {
	if _, err := r.vsctl(ctx, "wait-until", "Interface", device, "external_ids:ovn-installed=true"); err != nil {
		return time.Time{}, err
	}

	text, err := r.vsctl(ctx, "get", "Interface", device, "external_ids:ovn-installed-ts")
	if err != nil {
		return time.Time{}, err
	}

	ms, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)

	return time.UnixMilli(ms), err
}

func (r *realNode) stop() error {
	var errs []error

	for _, p := range []*process.Process{r.controller, r.vswitchd, r.db} {
		if p != nil {
			errs = append(errs, p.Stop(0))
		}
	}

	return errors.Join(append(errs, netns.Delete(r.netns))...)
}
