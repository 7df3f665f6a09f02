package kubelets

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

//go:embed coredns.yaml
var corednsManifest string

// deploy installs the release's chart by the command of docs/install.md. DNS is included.
func (c *Cluster) deploy(ctx context.Context) error {
	if err := c.configureBlankNodes(ctx); err != nil {
		return err
	}

	config := c.configuration()
	delete(config, "NB_ADDRESS") // the chart's own
	delete(config, "SB_ADDRESS")

	ovn := map[string]any{"replicas": c.opts.Members}
	if c.opts.Volume {
		ovn["volume"] = map[string]any{"size": "1Gi", "storageClass": storageClass}

		if err := c.provideVolume(ctx); err != nil {
			return err
		}
	}

	err := c.typing.values(map[string]any{
		"config": config, "controllerUser": 65532, "ovn": ovn, "ovs": map[string]any{"datapath": c.lab.Datapath()},
	})
	if err != nil {
		return err
	}

	if err := c.typing.install(ctx, installing); err != nil {
		return err
	}

	_, err = c.kubectl(ctx, []byte(c.dns()), "apply", "-f", "-")

	return err
}

// The volume for OVN's databases.
const (
	storageClass = "databases"
	volumeDir    = "/var/lib/databases" // on the control plane's node
	volumeBytes  = 64 << 20
)

// provideVolume creates a volume of its own file system on the control plane's node.
func (c *Cluster) provideVolume(ctx context.Context) error {
	n := c.controlPlane()

	root, err := c.rootOf(n)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Join(root, volumeDir), 0o755); err != nil {
		return err
	}

	init, err := c.lab.Process(n.Name + "-init")
	if err != nil {
		return err
	}

	mount := []string{"--target", strconv.Itoa(init.PID), "--mount", "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", volumeBytes), "tmpfs", volumeDir}
	if out, err := exec.CommandContext(ctx, "nsenter", mount...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s on %s: %w: %s", volumeDir, n.Name, err, bytes.TrimSpace(out))
	}

	objects := fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: %[1]s
  local: {path: %[3]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[2]q]}]}]}}
`, storageClass, n.Name, volumeDir)
	_, err = c.kubectl(ctx, []byte(objects), "apply", "-f", "-")

	return err
}

func (c *Cluster) dns() string {
	return strings.NewReplacer("@IMAGE@", corednsImage, "@DNS@", dnsIP).Replace(corednsManifest)
}

// chart returns the release's packed chart.
func (c *Cluster) chart() string { return c.released("ovn-ebpf-*.tgz") }

// helm runs Helm on the control plane's node, as cluster administrator.
func (c *Cluster) helm(ctx context.Context, args ...string) error {
	cmd, err := c.Command(ctx, c.program(helm), args...)
	if err != nil {
		return err
	}

	cmd.Env = append(cmd.Env, "HOME="+c.opts.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}

	return nil
}

// configuration returns this cluster's keys of the ConfigMap.
func (c *Cluster) configuration() map[string]string {
	return map[string]string{
		"CLUSTER_SUBNETS": lab.ClusterSubnets, "SERVICE_CIDRS": lab.ServiceCIDRs,
		"ALLOW_EXTERNAL_IPS": "203.0.113.250/32", // upstream's spec about external IPs
		"NB_ADDRESS":         c.lab.NBAddress(), "SB_ADDRESS": c.lab.SBAddress(),
		// Without kube-proxy, the agent serves Services.
		"KUBERNETES_SERVICE_HOST": c.serverAddress().Addr().String(),
		"KUBERNETES_SERVICE_PORT": strconv.Itoa(apiPort),
	}
}

// settings returns what n is told itself, as in docs/install.md: on the userspace datapath, tunnels
// need a separate address. Kernels with openvswitch need none of this.
func (c *Cluster) settings(n *lab.Node) []string {
	if c.lab.Datapath() != "netdev" {
		return nil
	}

	return []string{"external_ids:ovn-ebpf-encap-ip=" + n.Encap.String()}
}

// configureNodes writes the settings on nodes with Open vSwitch.
func (c *Cluster) configureNodes(ctx context.Context) error {
	for _, n := range c.lab.Nodes() {
		own := c.settings(n)
		if own == nil {
			continue
		}

		if _, err := c.lab.Exec(ctx, n.Name, append([]string{"ovs-vsctl", "set", "Open_vSwitch", "."}, own...)...); err != nil {
			return fmt.Errorf("tell %s its settings: %w", n.Name, err)
		}
	}

	return nil
}

// configureBlankNodes writes the settings into the database that Open vSwitch will find.
func (c *Cluster) configureBlankNodes(ctx context.Context) error {
	for _, n := range c.lab.Nodes() {
		own := c.settings(n)
		if own == nil {
			continue
		}

		ids := []any{[]string{"ovn-ebpf.io/managed", "true"}} // otherwise the chart takes it for the node's own

		for _, setting := range own {
			key, value, _ := strings.Cut(strings.TrimPrefix(setting, "external_ids:"), "=")
			ids = append(ids, []string{key, value})
		}

		row, err := json.Marshal([]any{"Open_vSwitch", map[string]any{"op": "insert", "table": "Open_vSwitch", "row": map[string]any{"external_ids": []any{"map", ids}}}})
		if err != nil {
			return err
		}

		dir := filepath.Join(c.nodeDir(n), "var/lib/ovn-ebpf/openvswitch")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}

		file := filepath.Join(dir, "conf.db")
		for _, argv := range [][]string{{"create", file, platform.OVSFile("vswitch.ovsschema")}, {"transact", file, string(row)}} {
			if out, err := exec.CommandContext(ctx, "ovsdb-tool", argv...).CombinedOutput(); err != nil {
				return fmt.Errorf("tell %s its settings: %w: %s", n.Name, err, bytes.TrimSpace(out))
			}
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
