package lab

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// Options configure a lab. The zero value of each has a default.
type Options struct {
	Dir   string // databases, sockets, logs, records; default /run/ovn-ebpf-lab
	Name  string // prefix of the namespaces' names; default "ovnlab". Labs of different names run side by side
	Nodes int    // 1 to 50; default 1
	// NodeNames are the names of the first nodes; the default is node<i>. Exec accepts node<i> for
	// all.
	NodeNames []string
	// VMs is the number of VMs that are nodes of Kubernetes, at most 8. With VMs, the nodes are
	// hypervisors without agents. Bare is implied.
	VMs int
	// Cloud has Neutron make the logical network and the ports of pods, at a Keystone and a Neutron
	// that run in the fabric. It needs VMs.
	Cloud bool

	Kube    bool // also an API server, with a Node object per node
	Cluster bool // also controller and agents; implies Kube
	Pods    bool // also scheduler, controller manager, kubectl and a stand-in kubelet per node, which runs pods; implies Cluster
	NoAgent bool // connect ovn-controller without an agent; implied without Kube
	Hosts   bool // machines only: tests start the agents later
	Blank   bool // machines with neither OVN nor Open vSwitch; implies Hosts

	Uplink    string   // of nodes: UplinkPlain, UplinkBond, UplinkVLAN or UplinkOwn; default UplinkPlain
	AgentArgs []string // further arguments of every agent, like --gateway-layout=bridged
	// ControllerArgs are further arguments of the controller.
	ControllerArgs []string
	ExternalIPs    string // --allow-external-ips of the controller and of every agent; default: none
	HostNetworks   string // --host-networks of the controller and of every agent; default: all
	Disk           string // size of separate tmpfs file systems for each node, the databases and etcd; "": use the machine's
	Datapath       string // "system" or "netdev"; default: as the kernel supports
	BinDir         string // of ovnkube, ovn-k8s-cni-overlay and ovnlab; needed by Cluster and for pods
	CacheDir       string // of the API server's binary and of platforms; default kube.CacheDir
	Platform       string // source of OVN, Open vSwitch and etcd: platform.Host, debian13 or debian12; default platform.Name

	// Owned labs are stale when the caller has ended, even if their daemons run: test/sweep removes
	// them. Other labs are in use until their last process ends.
	Owned bool

	FailedLogs string // new directory for the logs of a failed Up; "": not copied

	Progress io.Writer // one line per step; may be nil
	Log      *slog.Logger
}

const maxNodes = 50

// Named returns the directory and the full name of the lab called name; "" is the unnamed lab. In
// namespace names a dash follows the lab's name, so no two labs share one.
func Named(name string) (dir, full string) {
	dir, full = "/run/ovn-ebpf-lab", "ovnlab"
	if name != "" {
		dir, full = dir+"-"+name, full+"."+name
	}

	return dir, full
}

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		field *string
		value string
	}{{&o.Dir, "/run/ovn-ebpf-lab"}, {&o.Name, "ovnlab"}, {&o.CacheDir, kube.CacheDir()}, {&o.Uplink, UplinkPlain}, {&o.Platform, platform.Name()}, {&o.HostNetworks, "0.0.0.0/0,::/0"}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}

	if o.Nodes == 0 {
		o.Nodes = 1
	}

	o.Cluster = o.Cluster || o.Pods
	o.Kube = o.Kube || o.Cluster
	o.Hosts = o.Hosts || o.Blank

	o.NoAgent = o.NoAgent || !o.Kube && !o.Hosts || o.VMs > 0
	if o.Progress == nil {
		o.Progress = io.Discard
	}

	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}

	return o, o.validate()
}

func (o Options) validate() error {
	var errs []error
	if !filepath.IsAbs(o.Dir) || filepath.Clean(o.Dir) == "/" {
		errs = append(errs, fmt.Errorf("directory %q is not absolute", o.Dir))
	}
	// The longest socket name below Dir is the control socket of a daemon in a node's run
	// directory; sun_path holds 107 bytes.
	if n := len(o.Dir + "/node50/ovn-controller.4194304.ctl"); n > 107 {
		errs = append(errs, fmt.Errorf("directory %q is too long for unix sockets below it", o.Dir))
	}

	if !regexp.MustCompile(`^[a-z][a-z0-9.]*$`).MatchString(o.Name) {
		errs = append(errs, fmt.Errorf("name %q is not lower case letters, digits and dots", o.Name))
	}

	if o.Nodes < 1 || o.Nodes > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes are not 1 to %d", o.Nodes, maxNodes))
	}

	if o.VMs < 0 || o.VMs > maxVMs {
		errs = append(errs, fmt.Errorf("%d VMs are not 0 to %d", o.VMs, maxVMs))
	}

	if o.VMs > 0 && (o.Hosts || o.Uplink != UplinkPlain) {
		errs = append(errs, errors.New("VMs need hypervisors with OVN and a plain uplink"))
	}

	if o.Cloud && o.VMs == 0 {
		errs = append(errs, errors.New("a cloud needs VMs"))
	}

	if o.Datapath != "" && o.Datapath != "system" && o.Datapath != "netdev" {
		errs = append(errs, fmt.Errorf("datapath %q is neither system nor netdev", o.Datapath))
	}

	for _, name := range o.NodeNames {
		if !regexp.MustCompile(`^[a-z][a-z0-9-]{0,12}[a-z0-9]$`).MatchString(name) { // a device name is one letter longer
			errs = append(errs, fmt.Errorf("node name %q is not 2 to 14 lower case letters, digits and hyphens", name))
		}
	}

	if err := checkUplink(o.Uplink); err != nil {
		errs = append(errs, err)
	}

	if o.Cluster {
		for _, program := range []string{controllerProgram, pluginProgram, labProgram} {
			if _, err := os.Stat(filepath.Join(o.BinDir, program)); err != nil {
				errs = append(errs, fmt.Errorf("find %s: %w", program, err))
			}
		}
	}

	return errors.Join(errs...)
}

// preflight returns everything that the machine lacks.
func (o Options) preflight() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}

	packages := map[string][]string{
		"openvswitch-switch": {"ovs-vswitchd", "ovsdb-server"},
		"openvswitch-common": {"ovs-vsctl", "ovsdb-tool", platform.OVSFile(vswitchSchema)},
		"ovn-central":        {"ovn-northd"},
		"ovn-common":         {"ovn-nbctl", "ovn-sbctl", platform.OVNFile(nbSchema), platform.OVNFile(sbSchema)},
		"ovn-host":           {"ovn-controller"},
		"util-linux":         {"nsenter"},
	}
	if o.Kube {
		packages["etcd-server"] = []string{"etcd"}
	}

	if o.VMs > 0 {
		packages["iputils-ping"] = []string{"ping"}
	}

	var errs []error

	for name, needs := range packages {
		for _, need := range needs {
			if !present(need) {
				errs = append(errs, fmt.Errorf("find %s: install package %s", need, name))
			}
		}
	}

	names, err := netns.List(o.Name + "-")
	if err != nil {
		errs = append(errs, err)
	}

	if len(names) > 0 {
		errs = append(errs, fmt.Errorf("a lab of this name is up: netns %s exist; take it down first", strings.Join(names, ", ")))
	}

	return errors.Join(errs...)
}

func present(need string) bool {
	if filepath.IsAbs(need) {
		_, err := os.Stat(need)
		return err == nil
	}

	_, err := exec.LookPath(need)

	return err == nil
}
