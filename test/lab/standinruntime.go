package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// attach calls the plugin with ADD, as a container runtime would.
func (l *Lab) attach(ctx context.Context, n *Node, p *Pod) ([]netip.Addr, error) {
	network, err := awaitNetwork(ctx, n.CNIConfDir)
	if err != nil {
		return nil, err
	}

	result, err := l.runtime(n).AddNetworkList(ctx, network, runtimeConf(p))
	if err != nil {
		return nil, fmt.Errorf("call plugin with ADD: %w", err)
	}

	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("read plugin's result: %w", err)
	}

	var addrs []netip.Addr

	for _, c := range current.IPs {
		if a, ok := netip.AddrFromSlice(c.Address.IP); ok {
			addrs = append(addrs, a.Unmap())
		}
	}

	if len(addrs) == 0 {
		return nil, errors.New("read plugin's result: no addresses")
	}

	return addrs, nil
}

// detach calls the plugin with DEL. It does nothing on a node that was never ready.
func (l *Lab) detach(ctx context.Context, n *Node, p *Pod) error {
	network, err := findNetwork(n.CNIConfDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := l.runtime(n).DelNetworkList(ctx, network, runtimeConf(p)); err != nil {
		return fmt.Errorf("call plugin with DEL: %w", err)
	}

	return nil
}

func (l *Lab) runtime(n *Node) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{l.opts.BinDir}, filepath.Join(n.RunDir, "cni-cache"),
		&pluginExec{netns: n.Netns})
}

func runtimeConf(p *Pod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.containerID(), NetNS: netns.Path(p.Netns), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.containerID()},
			{"K8S_POD_UID", p.UID},
		},
	}
}

// Sandbox returns the sandbox of a pod that a stand-in kubelet runs.
func (l *Lab) Sandbox(pod *corev1.Pod) *Pod {
	p := &Pod{
		Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, UID: string(pod.UID),
		Netns: l.podNetns(pod.Namespace, pod.Name), Labels: pod.Labels,
	}
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			p.IPs = append(p.IPs, a)
		}
	}

	return p
}

// CallPlugin calls the plugin with ADD or DEL for a sandbox, as the runtime on the pod's node would.
// An error of the plugin is a *types.Error.
func (l *Lab) CallPlugin(ctx context.Context, command string, p *Pod) error {
	node, err := l.nodeByName(p.Node)
	if err != nil {
		return err
	}

	switch command {
	case "ADD":
		_, err = l.attach(ctx, node, p)
		return err
	case "DEL":
		return l.detach(ctx, node, p)
	}

	return fmt.Errorf("call plugin: command %q is neither ADD nor DEL", command)
}

// findNetwork reads the first configuration of the directory, as runtimes do. The error wraps
// os.ErrNotExist if there is none, which means that the node is not ready.
func findNetwork(dir string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(dir, []string{".conflist"})
	if err != nil {
		return nil, fmt.Errorf("find network configuration: %w", err)
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("find network configuration in %s: %w", dir, os.ErrNotExist)
	}

	return libcni.ConfListFromFile(files[0])
}

// awaitNetwork waits for the node's agent to write its configuration.
func awaitNetwork(ctx context.Context, dir string) (*libcni.NetworkConfigList, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		network, err := findNetwork(dir)
		if !errors.Is(err, os.ErrNotExist) {
			return network, err
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// pluginExec runs plugins in a node's network namespace, in place of a kubelet and its runtime.
type pluginExec struct {
	version.PluginDecoder
	netns string
}

func (*pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

func (e *pluginExec) ExecPlugin(ctx context.Context, plugin string, stdin []byte, env []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+netns.Path(e.netns), "--", plugin)

	var stdout, stderr bytes.Buffer

	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr

	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	// A plugin that fails prints an error object.
	said := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), said) == nil && said.Msg != "" {
		return nil, said
	}

	return nil, fmt.Errorf("%w: %s%s", err, stdout.String(), strings.TrimSpace(stderr.String()))
}

func isNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }

// check calls the plugin with CHECK and the result of ADD.
func (l *Lab) check(ctx context.Context, n *Node, p *Pod) error {
	network, err := findNetwork(n.CNIConfDir)
	if err != nil {
		return err
	}

	if err := l.runtime(n).CheckNetworkList(ctx, network, runtimeConf(p)); err != nil {
		return fmt.Errorf("call plugin with CHECK: %w", err)
	}

	return nil
}
