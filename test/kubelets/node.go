package kubelets

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

var (
	//go:embed node-init
	initScript []byte
	//go:embed kubelet.yaml
	kubeletConfig string
	//go:embed containerd.toml
	containerdConfig string
)

// asSystemd mounts a bpffs as systemd does, so that a node's init finds one on every machine. The
// temporary directory of a tether is in /run, of which each node has its own.
const asSystemd = `unset TMPDIR; mount -t bpf bpf /sys/fs/bpf; exec "$@"`

// startNode starts a node's init with containerd and kubelet.
func (c *Cluster) startNode(n *lab.Node) error {
	dir := c.nodeDir(n)
	if err := os.MkdirAll(c.manifests(n), 0o755); err != nil {
		return err
	}

	if _, err := c.server.Identity(n.Name, "system:node:"+n.Name, []string{"system:nodes"}, n.IP4, n.IP6); err != nil {
		return err
	}

	pki := c.server.PKI()
	kubelet := strings.NewReplacer(
		"@CGROUP@", n.Netns, "@MANIFESTS@", c.manifests(n), "@DNS@", dnsIP, "@CA@", filepath.Join(pki, "ca.crt"),
		"@CERT@", filepath.Join(pki, n.Name+".crt"), "@KEY@", filepath.Join(pki, n.Name+".key"),
	).Replace(kubeletConfig)

	script := filepath.Join(dir, nodeInit)
	for file, content := range map[string]string{
		filepath.Join(dir, "kubelet.yaml"):    kubelet,
		filepath.Join(dir, "containerd.toml"): strings.ReplaceAll(containerdConfig, "@PAUSE@", pauseImage),
		script:                                string(initScript),
	} {
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			return err
		}
	}

	kubeconfig, err := os.ReadFile(filepath.Join(pki, n.Name+".kubeconfig"))
	if err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600); err != nil {
		return err
	}

	_, err = c.lab.Spawn(n.Name, n.Name+"-init",
		"unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
		"sh", "-ec", asSystemd, "sh", script, n.Name, n.Netns, dir, n.RunDir, c.bin, c.path("images"), n.IP4.String()+","+n.IP6.String())

	return err
}

// manifests returns the directory of the node's static pods.
func (c *Cluster) manifests(n *lab.Node) string { return filepath.Join(c.nodeDir(n), "manifests") }

// awaitRegistered waits until every kubelet has created its Node. Each Node gets its own zone, and
// the first ones the control plane label, which kubelets may not set.
func (c *Cluster) awaitRegistered(ctx context.Context) error {
	for _, n := range c.lab.Nodes() {
		err := c.await(ctx, n.Name+" to register", func() error {
			_, err := c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			return err
		})
		if err != nil {
			return err
		}

		zone := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"zone-%s"}}}`, corev1.LabelTopologyZone, n.Name)
		if _, err := c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, zone, metav1.PatchOptions{}); err != nil {
			return err
		}
	}

	patch := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)

	for i, n := range c.lab.Nodes() {
		if i >= c.opts.Members && !c.opts.NoNetwork {
			break
		}

		if _, err := c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}

	return nil
}

// declareUnavailable sets the condition NetworkUnavailable of every Node, as some clouds do when they
// create Nodes. It waits until kube-controller-manager has tainted the Nodes for it.
func (c *Cluster) declareUnavailable(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"NoRouteCreated"}]}}`, corev1.NodeNetworkUnavailable)
	for _, n := range c.lab.Nodes() {
		if _, err := c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}

		err := c.await(ctx, n.Name+" to be tainted", func() error {
			node, err := c.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err == nil && !networkUnavailable(node) {
				err = fmt.Errorf("taints %v", node.Spec.Taints)
			}

			return err
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// networkUnavailable reports whether the Node repels pods because its network is not ready.
func networkUnavailable(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNetworkUnavailable })
}

// awaitNodes waits until all nodes are ready.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	return c.await(ctx, "nodes to be ready", func() error {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		for _, n := range nodes.Items {
			if networkUnavailable(&n) {
				return fmt.Errorf("%s: the network is not available", n.Name)
			}

			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
					return fmt.Errorf("%s: %s", n.Name, condition.Message)
				}
			}
		}

		return nil
	})
}

// awaitReady waits until all nodes are ready and DNS has a ready pod.
func (c *Cluster) awaitReady(ctx context.Context) error {
	if err := c.awaitNodes(ctx); err != nil {
		return err
	}

	return c.await(ctx, "pods of kube-system and ovn-ebpf", func() error {
		for _, namespace := range []string{"ovn-ebpf", metav1.NamespaceSystem} {
			pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}

			if len(pods.Items) == 0 {
				return fmt.Errorf("no pods in %s", namespace)
			}

			for i := range pods.Items {
				if err := unready(&pods.Items[i]); err != nil {
					return err
				}
			}
		}

		return nil
	})
}

func unready(p *corev1.Pod) error {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}

	reason := string(p.Status.Phase)
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			reason += ", " + s.State.Waiting.Reason + " " + s.State.Waiting.Message
		}
	}

	return fmt.Errorf("pod %s is not ready: %s", p.Name, reason)
}

const readyTimeout = 4 * time.Minute

// await calls ready until it returns nil, for at most readyTimeout.
func (c *Cluster) await(ctx context.Context, what string, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for {
		err := ready()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
