package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// api is a real API server, and the client that writes the cluster's objects.
type api struct {
	*kubernetes.Clientset
	server     *kube.Server
	kubeconfig string         // path
	pids       map[string]int // of etcd and kube-apiserver
}

func startAPI(ctx context.Context, dir string) (*api, error) {
	binary, err := kube.Build(ctx, kube.CacheDir(), os.Stderr)
	if err != nil {
		return nil, err
	}

	server, err := kube.Start(ctx, kube.Options{Dir: dir, Binary: binary})
	if err != nil {
		return nil, err
	}

	a := &api{server: server, kubeconfig: filepath.Join(dir, "kubeconfig"), pids: map[string]int{}}
	if err := server.Kubeconfig(a.kubeconfig); err != nil {
		return a, err
	}

	for _, name := range []string{"etcd", "kube-apiserver"} {
		p, err := process.Load(filepath.Join(dir, name+".pid"))
		if err != nil {
			return a, err
		}

		a.pids[name] = p.PID
	}

	config := server.RestConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	a.Clientset, err = kubernetes.NewForConfig(config)

	return a, err
}

// each calls f for 0 to n-1, several at once.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	const parallel = 24

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)

	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}

	return group.Wait()
}

var create metav1.CreateOptions

// fill creates all objects but the pods.
func (a *api) fill(ctx context.Context, c *cluster, services, policies int) error {
	err := each(ctx, namespaces, func(ctx context.Context, i int) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i)}}
		_, err := a.CoreV1().Namespaces().Create(ctx, ns, create)

		return err
	})
	if err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}

	err = each(ctx, len(c.nodes), func(ctx context.Context, i int) error {
		_, err := a.CoreV1().Nodes().Create(ctx, c.node(i), create)
		return err
	})
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}

	err = each(ctx, services, func(ctx context.Context, i int) error {
		svc, slice := c.service(i)
		if _, err := a.CoreV1().Services(svc.Namespace).Create(ctx, svc, create); err != nil {
			return err
		}

		_, err := a.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, create)

		return err
	})
	if err != nil {
		return fmt.Errorf("create services: %w", err)
	}

	err = each(ctx, policies, func(ctx context.Context, i int) error {
		p := c.policy(i)
		_, err := a.NetworkingV1().NetworkPolicies(p.Namespace).Create(ctx, p, create)

		return err
	})
	if err != nil {
		return fmt.Errorf("create policies: %w", err)
	}

	return nil
}

// addPods creates n further pods.
func (a *api) addPods(ctx context.Context, c *cluster, n int, addresses bool) error {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = c.pod(addresses)
	}

	return each(ctx, n, func(ctx context.Context, i int) error { return a.createPod(ctx, pods[i]) })
}

func (a *api) createPod(ctx context.Context, p *corev1.Pod) error {
	_, err := a.CoreV1().Pods(p.Namespace).Create(ctx, p, create)
	return err
}

func (a *api) deletePod(ctx context.Context, p podRef) error {
	now := int64(0)
	return a.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// churn makes rate changes per second for the duration, and returns their number. Of ten changes,
// five create a pod, four delete the oldest pod, and one changes the endpoints of a Service.
func (a *api) churn(ctx context.Context, c *cluster, services int, rate float64, duration time.Duration) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)

	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()

	end, n := time.Now().Add(duration), 0
	c.rounds++ // so that the endpoints differ from those of the previous size

	for ; time.Now().Before(end) && ctx.Err() == nil; n++ {
		<-tick.C

		switch {
		case n%10 == 9 && services > 0:
			slice := c.slice(n/10%services, c.rounds+n/10/services)

			group.Go(func() error {
				_, err := a.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
				return err
			})
		case n%2 == 0:
			pod := c.pod(true)

			group.Go(func() error { return a.createPod(ctx, pod) })
		default:
			pod := c.oldest()

			group.Go(func() error { return a.deletePod(ctx, pod) })
		}
	}

	return n, group.Wait()
}
