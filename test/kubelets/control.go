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

// startControlPlane starts etcd, API server, controller manager and scheduler as host processes on
// the first node.
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

	c.step("API server %s at https://%s", kube.Version(), c.serverAddress())

	managers, err := c.server.Managers(c.bin, c.opts.Name)
	if err != nil {
		return err
	}

	for program, argv := range managers {
		if _, err := c.lab.Spawn(n.Name, program, argv...); err != nil {
			return fmt.Errorf("start %s: %w", program, err)
		}
	}

	return nil
}
