package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// Networks of the cluster.
const (
	ClusterSubnets = "10.244.0.0/16/24,fd00:10:244::/48/64"
	ServiceCIDRs   = "10.96.0.0/16,fd00:10:96::/112"
)

// readyTimeout is the programs' time limit for readiness in Up. They need a few seconds on an idle
// machine, and minutes in an emulated one under load.
const readyTimeout = 5 * time.Minute

// startCluster starts the controller and all agents and waits until they are ready.
func (l *Lab) startCluster(ctx context.Context) error {
	if l.opts.Cloud {
		if err := l.initProject(ctx); err != nil {
			return err
		}
	}

	if l.hasController() {
		if err := l.StartController(ctx); err != nil {
			return err
		}
	}

	nodes := l.KubeNodes()
	for i := range nodes {
		if err := l.StartAgent(ctx, i+1); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()

	if l.hasController() {
		if err := l.AwaitController(ctx); err != nil {
			return err
		}

		l.step("controller ready")
	}

	for i, n := range nodes {
		if err := l.AwaitAgent(ctx, i+1); err != nil {
			return err
		}

		l.step("agent of %s ready", n.Name)
	}

	return nil
}

// hasController reports whether the lab has our controller. VMs without a cloud have none: their logical
// network and pools are the lab's.
func (l *Lab) hasController() bool { return l.opts.VMs == 0 || l.opts.Cloud }

// StartController starts the controller in the fabric, with optional extra arguments, without
// waiting for readiness. Its log is <Dir>/log/controller.log.
func (l *Lab) StartController(_ context.Context, extra ...string) error {
	argv := append(append(l.controllerArgv(), "--metrics-bind-address", controllerMetrics), l.opts.ControllerArgs...)
	_, err := l.spawn(l.fabric(), "controller", nil, append(argv, extra...)...)

	return err
}

func (l *Lab) controllerArgv() []string {
	argv := []string{filepath.Join(l.opts.BinDir, controllerProgram), "controller", "--kubeconfig", l.Kubeconfig()}
	if l.opts.Cloud {
		return append(argv, "--mode", "underlay", "--config-file", l.projectConfig())
	}

	return append(argv,
		"--nb-address", l.NBAddress(), "--sb-address", l.SBAddress(),
		"--cluster-subnets", ClusterSubnets, "--k8s-service-cidrs", ServiceCIDRs, "--allow-external-ips", l.opts.ExternalIPs,
		"--host-networks", l.opts.HostNetworks)
}

// StartAgent starts the agent on the i-th of KubeNodes, without waiting for readiness. Optional
// extra arguments override those of the lab. Its log is <Dir>/log/agent-<node>.log.
func (l *Lab) StartAgent(_ context.Context, i int, extra ...string) error {
	n := l.KubeNode(i)
	_, err := l.spawn(n.Netns, agentName(n), nil, l.agentArgv(i, extra...)...)

	return err
}

// StartAgentFrom is StartAgent with the program of another directory, as after an upgrade, and with
// flags that may change its layout.
func (l *Lab) StartAgentFrom(ctx context.Context, dir string, i int, flags ...string) error {
	other := *l
	other.opts.BinDir = dir
	other.opts.AgentArgs = slices.Concat(l.opts.AgentArgs, flags)

	return other.StartAgent(ctx, i)
}

// CleanUpAgent runs the agent with --cleanup on the i-th of KubeNodes, where none may run.
func (l *Lab) CleanUpAgent(ctx context.Context, i int) error {
	_, err := l.Exec(ctx, l.KubeNode(i).Name, l.agentArgv(i, "--cleanup")...)
	return err
}

func (l *Lab) agentArgv(i int, extra ...string) []string {
	n := l.KubeNode(i)
	argv := []string{
		filepath.Join(l.opts.BinDir, controllerProgram), "agent", "--node-name", n.Name, "--kubeconfig", l.Kubeconfig(),
		"--pin-dir", n.PinDir, "--cni-socket", n.CNISocket, "--cni-conf-dir", n.CNIConfDir, "--run-dir", n.RunDir,
		"--metrics-bind-address", agentMetrics,
	}

	mode := []string{"--mode", "underlay", "--vif-id", l.VM(i).VIF}
	if l.opts.VMs == 0 {
		mode = l.overlayArgs(i)
	}

	return slices.Concat(argv, mode, l.opts.AgentArgs, extra)
}

// overlayArgs returns the arguments of the i-th node's agent about OVN and the gateway.
func (l *Lab) overlayArgs(i int) []string {
	n := l.Node(i)

	args := []string{
		"--ovsdb", n.OVSDB, "--ovs-rundir", n.RunDir, "--ovn-rundir", n.RunDir, "--sb-address", l.SBAddress(),
		"--datapath", l.opts.Datapath, "--cluster-subnets", ClusterSubnets, "--k8s-service-cidrs", ServiceCIDRs,
		"--allow-external-ips", l.opts.ExternalIPs, "--host-networks", l.opts.HostNetworks,
	}
	if n.Encap.IsValid() && !l.bridged() { // bridged tunnels end at the node's own address
		args = append(args, "--encap-ip", n.Encap.String())
	}

	return append(args, l.wiringArgs(i)...)
}

func agentName(n *Node) string { return "agent-" + n.Name }

// StopController sends the signal and waits for the controller's end. It kills the controller after
// ten seconds.
func (l *Lab) StopController(sig syscall.Signal) error { return l.stop("controller", sig) }

// StopAgent does the same with the agent of the i-th of KubeNodes.
func (l *Lab) StopAgent(i int, sig syscall.Signal) error {
	return l.stop(agentName(l.KubeNode(i)), sig)
}

func (l *Lab) stop(name string, sig syscall.Signal) error {
	p, err := process.Load(l.record(name))
	if err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}

	grace := 10 * time.Second
	if sig == syscall.SIGKILL {
		grace = 0
	} else if sig != syscall.SIGTERM {
		if err := p.Signal(sig); err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
	}

	if err := p.Stop(grace); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}

	return os.Remove(l.record(name))
}

// StopVswitchd kills ovs-vswitchd of the i-th node, which then has no datapath until StartVswitchd.
func (l *Lab) StopVswitchd(i int) error {
	return l.stop(filepath.Base(l.Node(i).RunDir)+"-ovs-vswitchd", syscall.SIGKILL)
}

// StartVswitchd undoes StopVswitchd.
func (l *Lab) StartVswitchd(i int) error { return l.startVswitchd(l.Node(i)) }

// AwaitController waits until the controller's /readyz returns 200.
func (l *Lab) AwaitController(ctx context.Context) error {
	return l.awaitReady(ctx, "controller", "central", "http://"+controllerMetrics+"/readyz")
}

// AwaitAgent waits until /readyz of the agent on the i-th of KubeNodes returns 200.
func (l *Lab) AwaitAgent(ctx context.Context, i int) error {
	n := l.KubeNode(i)
	return l.awaitReady(ctx, agentName(n), n.Name, "http://"+agentMetrics+"/readyz")
}

// awaitReady polls until the response is 200. Its error contains the last response, or the end of
// the program's log.
func (l *Lab) awaitReady(ctx context.Context, name, on, url string) error {
	p, err := process.Load(l.record(name))
	if err != nil {
		return err
	}

	client, err := l.Client(on)
	if err != nil {
		return err
	}

	return p.Await(ctx, name, func() error { return Healthy(ctx, client, url) })
}

// Healthy returns an error with the answer's status and body, unless the status is 200.
func Healthy(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}

	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", res.StatusCode, strings.TrimSpace(string(body)))
	}

	return nil
}
