package lab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// up does the work of Up. Down can remove everything that it starts.
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

	for on, device := range map[string]string{"central": FabricBridge, "ext": "eth0"} {
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
		if err := l.startCluster(ctx); err != nil {
			return err
		}
	}

	if l.opts.Datapath == "system" {
		if err := l.checkUpcalls(ctx); err != nil {
			return err
		}
	}

	if l.opts.Cluster && l.opts.Pods {
		return l.startKubelets(ctx)
	}

	return nil
}

// startManagers starts the controller manager and the scheduler in the fabric.
func (l *Lab) startManagers() error {
	managers, err := l.kube.Managers(l.state.Programs, l.opts.Name)
	if err != nil {
		return err
	}

	for program, argv := range managers {
		if _, err := l.spawn(l.fabric(), program, nil, argv...); err != nil {
			return err
		}
	}

	return nil
}

// startKubelets starts a stand-in kubelet on every node, and waits until pods can be created and
// scheduled.
func (l *Lab) startKubelets(ctx context.Context) error {
	for _, n := range l.KubeNodes() {
		if _, err := l.spawn(n.Netns, "kubelet-"+n.Name, nil, filepath.Join(l.opts.BinDir, labProgram), "kubelet", "--dir", l.opts.Dir, n.Name); err != nil {
			return err
		}
	}

	client, err := l.Kubernetes()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()

	manager, err := process.Load(l.record("kube-controller-manager"))
	if err != nil {
		return err
	}

	if err := manager.Await(ctx, "kube-controller-manager", func() error { return podsWelcome(ctx, client) }); err != nil {
		return err
	}

	l.step("controller manager, scheduler and a stand-in kubelet per node: pods run")

	return nil
}

// podsWelcome returns nil when a pod of the default namespace can be created and scheduled.
func podsWelcome(ctx context.Context, client *kubernetes.Clientset) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}

	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	for _, n := range nodes.Items {
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", n.Name, n.Spec.Taints[0].Key)
		}

		if n.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
			return fmt.Errorf("kubelet of %s has not reported", n.Name)
		}
	}

	return nil
}

func (l *Lab) startOVN(ctx context.Context) error {
	if !l.opts.Blank {
		if err := l.startCentral(ctx); err != nil {
			return err
		}

		l.step("central: Northbound and Southbound databases, northd")
	}

	for _, n := range l.Nodes() {
		if err := l.startNode(ctx, n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}

		l.step("%s: %s, %s", n.Name, n.IP4, n.IP6)
	}

	if !l.opts.NoAgent {
		return nil
	}

	if err := l.awaitChassis(ctx); err != nil {
		return err
	}

	l.step("all chassis registered")

	if l.opts.VMs == 0 {
		return nil
	}

	return l.startCloud(ctx)
}

// startKube starts the API server and creates the Node objects, and the pools of VMs.
func (l *Lab) startKube(ctx context.Context, binary string) error {
	s, err := kube.Start(ctx, kube.Options{
		Dir: l.path("kube"), Binary: binary, Netns: l.fabric(), Detached: true, Managed: l.opts.Pods,
		BindAddress: netip.IPv4Unspecified(), AdvertiseAddress: netip.MustParseAddr(CentralIP4), Port: apiPort,
	})
	if err != nil {
		return err
	}

	l.kube = s
	if err := s.Kubeconfig(l.path("kubeconfig")); err != nil {
		return err
	}

	l.step("API server %s at https://%s:%d", kube.Version(), CentralIP4, apiPort)

	client, err := l.Kubernetes()
	if err != nil {
		return err
	}

	capacity := machine()
	if l.opts.VMs > 0 {
		capacity = smallVM()
	}

	if err := standinNodes(ctx, client, l.KubeNodes(), capacity); err != nil {
		return err
	}

	if l.opts.Cloud {
		// The controller writes the pools.
		err = standinNamespace(ctx, client, annotation.PoolNamespace)
	} else {
		err = standinPools(ctx, client, l.VMs())
	}

	if err != nil {
		return err
	}

	if !l.opts.Pods {
		return nil
	}

	return l.startManagers()
}

// RestConfig returns a configuration for clients in this process, as cluster administrator, from
// any namespace. Programs inside the lab use <Dir>/kubeconfig.
func (l *Lab) RestConfig() (*rest.Config, error) {
	if l.kube == nil {
		return nil, fmt.Errorf("reach API server: lab %s has none", l.opts.Dir)
	}

	return l.kube.RestConfig(), nil
}

// Kubernetes returns a client with RestConfig.
func (l *Lab) Kubernetes() (*kubernetes.Clientset, error) {
	config, err := l.RestConfig()
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(config)
}

// Kubeconfig returns the file for programs inside the lab.
func (l *Lab) Kubeconfig() string { return l.path("kubeconfig") }
