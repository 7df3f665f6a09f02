package kubelets

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

const (
	rebootApp   = "reboot"
	rebootPods  = 5 // plus a static one
	rebootPort  = 8080
	agnhostName = "agnhost"
)

// Reboot checks that a node recovers without help: the last node is powered off and booted with its
// disk. Then every pod that was on it must run, have an address, and answer a pod of another node
// by its address and through a Service. No parts of the pods from before the boot may remain.
func (c *Cluster) Reboot(ctx context.Context) error {
	if err := c.reboot(ctx); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}

	return nil
}

func (c *Cluster) reboot(ctx context.Context) error {
	n := c.lab.Node(c.opts.Nodes)
	if err := c.createReboot(ctx, n); err != nil {
		return err
	}

	if err := c.await(ctx, "pods before the boot", func() error { return c.serves(ctx, n.Name, time.Time{}) }); err != nil {
		return err
	}

	began := time.Now()

	if err := c.lab.Reboot(ctx, n.Index); err != nil {
		return err
	}

	if err := removeCgroups(n.Netns); err != nil {
		return err
	}

	if err := os.Remove(c.path("pid/" + n.Name + "-init.pid")); err != nil {
		return err
	}

	if err := c.startNode(n); err != nil {
		return err
	}
	// The API's times have a resolution of seconds.
	after := began.Truncate(time.Second)

	if err := c.await(ctx, "pods after the boot", func() error { return c.serves(ctx, n.Name, after) }); err != nil {
		return err
	}

	c.step("%s: %d pods and a static one serve again %.0f s after it was powered off", n.Name, rebootPods, time.Since(began).Seconds())

	return c.awaitReady(ctx)
}

// createReboot creates servers on that node with a Service, and a client on the first node.
func (c *Cluster) createReboot(ctx context.Context, node *lab.Node) error {
	labels := map[string]string{"app": rebootApp}
	replicas := int32(rebootPods)
	spec := func(on string, args ...string) corev1.PodSpec {
		return corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: on}, Containers: []corev1.Container{{
				Name: agnhostName, Image: testImages[0], Args: args,
			}},
		}
	}
	server := spec(node.Name, "netexec", fmt.Sprintf("--http-port=%d", rebootPort))

	static, err := yaml.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: rebootApp + "-static", Namespace: metav1.NamespaceDefault, Labels: labels}, Spec: server,
	})
	if err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(c.manifests(node), rebootApp+".yaml"), static, 0o644); err != nil {
		return err
	}

	_, err = c.client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: rebootApp},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: server},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	_, err = c.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: rebootApp},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(rebootPort)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	_, err = c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "client"}, Spec: spec(c.controlPlane().Name, "pause"),
	}, metav1.CreateOptions{})

	return err
}

// serves returns nil if every server is ready, was started after that time, and answers.
func (c *Cluster) serves(ctx context.Context, node string, after time.Time) error {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + rebootApp})
	if err != nil {
		return err
	}

	if len(pods.Items) != rebootPods+1 {
		return fmt.Errorf("%d pods, not %d", len(pods.Items), rebootPods+1)
	}

	to := []string{net.JoinHostPort(rebootApp, "80")}

	for i := range pods.Items {
		p := &pods.Items[i]
		if err := unready(p); err != nil {
			return err
		}

		started := p.Status.ContainerStatuses[0].State.Running
		if p.Spec.NodeName != node || started == nil || started.StartedAt.Time.Before(after) {
			return fmt.Errorf("pod %s on %s has not been started again", p.Name, p.Spec.NodeName)
		}

		to = append(to, net.JoinHostPort(p.Status.PodIP, fmt.Sprint(rebootPort)))
	}

	for _, at := range to {
		out, err := c.kubectl(ctx, nil, "exec", "client", "--", "curl", "-sS", "-m", "2", "http://"+at+"/hostname")
		if err != nil {
			return err
		}

		if !strings.HasPrefix(string(out), rebootApp) {
			return fmt.Errorf("%s answers %q", at, out)
		}
	}

	return nil
}
