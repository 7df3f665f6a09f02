package kubelets

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// startControlPlane starts etcd, API server, controller manager and scheduler on
// the first node, as processes of its host.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	n := c.controlPlane()
	var services []netip.Prefix
	for _, s := range strings.Split(lab.ServiceCIDRs, ",") {
		services = append(services, netip.MustParsePrefix(s))
	}
	pki := filepath.Join(c.path("kube"), "pki")
	var err error
	c.server, err = kube.Start(ctx, kube.Options{
		Dir: c.path("kube"), Binary: c.program("kube-apiserver"), Netns: n.Netns, Detached: true, Managed: true,
		BindAddress: netip.IPv4Unspecified(), AdvertiseAddress: n.IP4, Port: apiPort, ServiceCIDRs: services,
		ExtraArgs: []string{
			"--kubelet-client-certificate", filepath.Join(pki, "admin.crt"), "--kubelet-client-key", filepath.Join(pki, "admin.key"),
		},
	})
	if err != nil {
		return err
	}
	if err := c.server.Kubeconfig(c.kubeconfig()); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.server.RestConfig()); err != nil {
		return err
	}
	c.step("API server %s at https://%s", kube.Version, c.serverAddress())
	for _, p := range []struct {
		program, user string
		args          []string
	}{
		{"kube-controller-manager", "system:kube-controller-manager", []string{
			"--service-account-private-key-file", filepath.Join(pki, "service-account.key"), "--root-ca-file", filepath.Join(pki, "ca.crt"),
			"--use-service-account-credentials", "--cluster-name", c.opts.Name,
		}},
		{"kube-scheduler", "system:kube-scheduler", nil},
	} {
		config, err := c.server.Identity(p.program, p.user, nil)
		if err != nil {
			return err
		}
		argv := append([]string{
			c.program(p.program), "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
			"--leader-elect=false", "--bind-address", "127.0.0.1",
		}, p.args...)
		if _, err := c.lab.Spawn(n.Name, p.program, argv...); err != nil {
			return fmt.Errorf("start %s: %w", p.program, err)
		}
	}
	return nil
}
