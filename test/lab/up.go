package lab

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

// up does the work of Up; whatever it began, Down can end.
func (l *Lab) up(ctx context.Context, apiserver string) error {
	if err := l.mounts(); err != nil {
		return err
	}
	if err := l.disks(); err != nil {
		return err
	}
	if err := l.startFabric(); err != nil {
		return err
	}
	for on, device := range map[string]string{"central": fabricBridge, "ext": "eth0"} {
		if err := l.sumChecksums(ctx, on, device); err != nil {
			return err
		}
	}
	l.step("fabric, outside host")
	group, ctx2 := errgroup.WithContext(ctx)
	group.Go(func() error { return l.startOVN(ctx2) })
	if l.opts.Kube {
		group.Go(func() error { return l.startKube(ctx2, apiserver) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if l.opts.Cluster {
		return l.startCluster(ctx)
	}
	return nil
}

func (l *Lab) startOVN(ctx context.Context) error {
	if err := l.startCentral(ctx); err != nil {
		return err
	}
	l.step("central: Northbound and Southbound databases, northd")
	for _, n := range l.Nodes() {
		if err := l.startNode(ctx, n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
		l.step("%s: %s, %s", n.Name, n.IP4, n.IP6)
	}
	if !l.opts.Bare {
		return nil
	}
	if err := l.awaitChassis(ctx); err != nil {
		return err
	}
	l.step("all chassis registered")
	return nil
}

// startKube starts the API server and makes the Node objects.
func (l *Lab) startKube(ctx context.Context, binary string) error {
	s, err := kube.Start(ctx, kube.Options{
		Dir: l.path("kube"), Binary: binary, Netns: l.fabric(), Detached: true,
		BindAddress: netip.IPv4Unspecified(), AdvertiseAddress: netip.MustParseAddr(CentralIP4), Port: apiPort,
	})
	if err != nil {
		return err
	}
	l.kube = s
	if err := s.Kubeconfig(l.path("kubeconfig")); err != nil {
		return err
	}
	l.step("API server %s at https://%s:%d", kube.Version, CentralIP4, apiPort)
	client, err := l.Kubernetes()
	if err != nil {
		return err
	}
	return standinNodes(ctx, client, l.Nodes())
}

// RestConfig is for clients in this process, as cluster administrator, from
// whatever namespace. Programs inside the lab use <Dir>/kubeconfig.
func (l *Lab) RestConfig() (*rest.Config, error) {
	if l.kube == nil {
		return nil, fmt.Errorf("reach API server: lab %s has none", l.opts.Dir)
	}
	return l.kube.RestConfig(), nil
}

// Kubernetes is a client made from RestConfig.
func (l *Lab) Kubernetes() (*kubernetes.Clientset, error) {
	config, err := l.RestConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Kubeconfig is the file for programs inside the lab.
func (l *Lab) Kubeconfig() string { return l.path("kubeconfig") }
