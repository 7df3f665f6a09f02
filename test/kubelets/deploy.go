package kubelets

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

//go:embed coredns.yaml
var corednsManifest string

// deploy follows docs/install.md: it applies an overlay of deploy/base. DNS is included.
func (c *Cluster) deploy(ctx context.Context) error {
	if err := c.tellNodes(ctx); err != nil {
		return err
	}
	dir := c.path("overlay")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base, err := filepath.Rel(dir, filepath.Join(c.opts.Source, "deploy/base"))
	if err != nil {
		return err
	}
	overlay, err := c.overlay(base)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), overlay, 0o644); err != nil {
		return err
	}
	manifests, err := c.kubectl(ctx, nil, "kustomize", dir)
	if err != nil {
		return err
	}
	dns := strings.NewReplacer("@IMAGE@", corednsImage, "@DNS@", dnsIP).Replace(corednsManifest)
	_, err = c.kubectl(ctx, append(append(manifests, "\n---\n"...), dns...), "apply", "-f", "-")
	return err
}

// notRoot is the patch of docs/install.md for databases that are not reached by a unix socket.
const notRoot = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: ovn-ebpf-controller, namespace: ovn-ebpf},
  spec: {template: {spec: {securityContext: {runAsNonRoot: true, runAsUser: 65532}}}}}`

func (c *Cluster) overlay(base string) ([]byte, error) {
	patch, err := yaml.Marshal(configMap(c.configuration()))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{base}, "patches": []any{map[string]any{"patch": string(patch)}, map[string]any{"patch": notRoot}},
	})
}

// configuration returns this cluster's keys of the ConfigMap.
func (c *Cluster) configuration() map[string]string {
	return map[string]string{
		"CLUSTER_SUBNETS": lab.ClusterSubnets, "SERVICE_CIDRS": lab.ServiceCIDRs,
		"NB_ADDRESS": c.lab.NBAddress(), "SB_ADDRESS": c.lab.SBAddress(),
		// Without kube-proxy, the agent serves Services.
		"KUBERNETES_SERVICE_HOST": c.serverAddress().Addr().String(),
		"KUBERNETES_SERVICE_PORT": strconv.Itoa(apiPort),
	}
}

func configMap(data map[string]string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "ovn-ebpf", "namespace": "ovn-ebpf"}, "data": data,
	}
}

// tellNodes sets per-node values, as in docs/install.md: on the userspace datapath, tunnels need a
// separate address. Kernels with openvswitch need none of this.
func (c *Cluster) tellNodes(ctx context.Context) error {
	if c.lab.Datapath() != "netdev" {
		return nil
	}
	for _, n := range c.lab.Nodes() {
		own := []string{"ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-ebpf-encap-ip=" + n.Encap.String()}
		if c.opts.AvoidNullNAT {
			own = append(own, "external_ids:ovn-ebpf-avoid-null-nat=true")
		}
		if _, err := c.lab.Exec(ctx, n.Name, own...); err != nil {
			return fmt.Errorf("tell %s its settings: %w", n.Name, err)
		}
	}
	return nil
}

// kubectl runs kubectl on the control plane's node, as cluster administrator.
func (c *Cluster) kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd, err := c.Command(ctx, c.program("kubectl"), args...)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Command returns a command outside the cluster, on the nodes' network.
func (c *Cluster) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	cmd, err := c.lab.Command(ctx, "central", append([]string{program}, args...)...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.kubeconfig(), "PATH="+c.bin+":"+os.Getenv("PATH"))
	return cmd, nil
}
