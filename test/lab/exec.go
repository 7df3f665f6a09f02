package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// host is a place where commands run.
type host struct {
	netns string
	wrap  func(argv ...string) []string // if set, returns the command that runs argv
	env   []string                      // lets the tools of OVS, OVN and Kubernetes find this host's daemons
}

// host accepts "node<i>", a node's name, "vm<i>", "plain", "ext", "far", "central", "cloud" and
// "pod:<namespace>/<name>".
func (l *Lab) host(name string) (host, error) {
	kubeconfig := "KUBECONFIG=" + l.path("kubeconfig")
	for i, other := range l.opts.NodeNames {
		if name == other && i < l.opts.Nodes {
			name = "node" + strconv.Itoa(i+1)
		}
	}

	for _, v := range l.machines() {
		if v.Name == name {
			return host{netns: v.Netns, env: []string{kubeconfig}}, nil
		}
	}

	switch {
	case name == "ext":
		return host{netns: l.ext()}, nil
	case name == "far":
		return host{netns: l.far()}, nil
	case name == "cloud" && l.opts.Cloud:
		return host{netns: l.fabric(), wrap: l.cloudOptions().Inside}, nil
	case name == "central":
		env := append(daemonEnv(l.path("central")), "OVN_NB_DB="+l.NBSocket(), "OVN_SB_DB="+l.SBSocket(), kubeconfig)
		return host{netns: l.fabric(), env: env}, nil
	case strings.HasPrefix(name, "node"):
		i, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err == nil && i >= 1 && i <= l.opts.Nodes {
			n := l.Node(i)
			env := append(daemonEnv(n.RunDir), "OVN_NB_DB="+l.NBSocket(), "OVN_SB_DB="+l.SBSocket(), kubeconfig)

			return host{netns: n.Netns, env: env}, nil
		}
	case strings.HasPrefix(name, "pod:"):
		namespace, pod, ok := strings.Cut(strings.TrimPrefix(name, "pod:"), "/")
		if ok {
			return host{netns: l.podNetns(namespace, pod)}, nil
		}
	}

	known := fmt.Sprintf("node1 to node%d, ext, far, central or pod:NAMESPACE/NAME", l.opts.Nodes)
	if l.opts.VMs > 0 {
		known = fmt.Sprintf("vm1 to vm%d, plain, %s", l.opts.VMs, known)
	}

	if l.opts.Cloud {
		known = "cloud, " + known
	}

	return host{}, fmt.Errorf("find host %q: not %s", name, known)
}

// Command returns a command in the host's network namespace, not yet started. On nodes and central,
// the tools of OVS and OVN find the host's own daemons.
func (l *Lab) Command(ctx context.Context, name string, argv ...string) (*exec.Cmd, error) {
	h, err := l.host(name)
	if err != nil {
		return nil, err
	}

	if _, err := os.Stat(netns.Path(h.netns)); err != nil {
		return nil, fmt.Errorf("find host %q: %w", name, err)
	}

	if h.wrap != nil {
		argv = h.wrap(argv...)
	}
	// nsenter, not `ip netns exec`: the latter remounts /sys and so hides bpffs.
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns.Path(h.netns), "--"}, argv...)...)
	cmd.Env = append(os.Environ(), h.env...)

	return cmd, nil
}

// Login is Command for interactive use: the programs are in PATH, and on a node the tools find the
// node's agent, as with default paths on a machine.
func (l *Lab) Login(ctx context.Context, name string, argv ...string) (*exec.Cmd, error) {
	cmd, err := l.Command(ctx, name, argv...)
	if err != nil {
		return nil, err
	}

	path := l.opts.BinDir + ":" + os.Getenv("PATH")
	if l.state.Programs != "" {
		path = l.state.Programs + ":" + path
	}
	// nsenter looks for the program in this PATH.
	cmd.Env = append(cmd.Env, "PATH="+path)

	for _, n := range l.KubeNodes() {
		if n.Name == name || l.opts.VMs == 0 && "node"+strconv.Itoa(n.Index) == name {
			cmd.Env = append(cmd.Env, l.settings(n)...)
		}
	}

	return cmd, nil
}

// Typed runs a command as Login does, and returns both of its outputs, also with an error.
func (l *Lab) Typed(ctx context.Context, name string, argv ...string) (string, error) {
	cmd, err := l.Login(ctx, name, argv...)
	if err != nil {
		return "", err
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", strings.Join(argv, " "), name, err, out)
	}

	return string(out), err
}

// settings returns the node's paths and databases as environment variables of ovnkube.
func (l *Lab) settings(n *Node) []string {
	env := []string{
		"OVNKUBE_NODE_NAME=" + n.Name, "OVNKUBE_RUN_DIR=" + n.RunDir, "OVNKUBE_PIN_DIR=" + n.PinDir,
		"OVNKUBE_CNI_SOCKET=" + n.CNISocket, "OVNKUBE_CNI_CONF_DIR=" + n.CNIConfDir,
	}
	if l.opts.VMs > 0 {
		return append(env, "OVNKUBE_MODE=underlay")
	}

	return append(env,
		"OVNKUBE_OVSDB="+n.OVSDB, "OVNKUBE_OVS_RUNDIR="+n.RunDir, "OVNKUBE_OVN_RUNDIR="+n.RunDir,
		"OVNKUBE_NB_ADDRESS="+l.NBAddress(), "OVNKUBE_SB_ADDRESS="+l.SBAddress())
}

// Exec runs a command on the host and returns its standard output. Its error contains standard
// error.
func (l *Lab) Exec(ctx context.Context, host string, argv ...string) ([]byte, error) {
	cmd, err := l.Command(ctx, host, argv...)
	if err != nil {
		return nil, err
	}

	return output(cmd)
}

// Spawn starts a background command on the host that ends with the lab at the latest. Its output is
// in <Dir>/log/<name>.log; name must be unique.
func (l *Lab) Spawn(on, name string, argv ...string) (*process.Process, error) {
	h, err := l.host(on)
	if err != nil {
		return nil, err
	}

	return l.spawn(h.netns, name, h.env, argv...)
}

// Client returns an HTTP client with connections from the host. Addresses must be literal.
func (l *Lab) Client(on string) (*http.Client, error) {
	h, err := l.host(on)
	if err != nil {
		return nil, err
	}

	return &http.Client{Transport: &http.Transport{DialContext: netns.Dialer(h.netns), DisableKeepAlives: true}}, nil
}
