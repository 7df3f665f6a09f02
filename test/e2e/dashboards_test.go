package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// dashboardsEnv is the directory that pictures of the dashboards are written to.
const dashboardsEnv = "OVN_EBPF_DASHBOARDS"

// drawDashboards draws what the dashboards show of two minutes of traffic, each kind of
// which begins and ends at another time.
func drawDashboards(t *testing.T, c *Cluster, s prometheus.Server, dir string) {
	t.Helper()
	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c.makeTraffic(t, client)
	for _, d := range prometheus.Dashboards() {
		svg, err := s.Draw(d, begun, time.Now(), "10s")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "dashboard-"+d+".svg"), []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *Cluster) makeTraffic(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const fast = "10ms"
	c.hold(t, "host", "ext", port(c.node(1)(false), sshPort), 115*time.Second, "-interval", fast)
	steps := []struct {
		after time.Duration
		begin func()
	}{
		{10 * time.Second, func() {
			c.hold(t, "pod to outside", host("a"), port(outside(false), outsidePort), time.Minute, "-interval", "5ms")
		}},
		{25 * time.Second, func() {
			c.meet(ctx, "ext", port(c.gateway(1)(false), nodePort))
			c.run(t, "NodePort", "ext", append([]string{"timeout", "60"}, c.traffic("tcp", port(c.gateway(1)(false), nodePort).String(), "-n", "1000000")...)...)
		}},
		{40 * time.Second, func() {
			c.run(t, "ping", "ext", "timeout", "40", "ping", "-n", "-q", "-i", "0.02", c.node(1)(false).String())
		}},
		{55 * time.Second, func() {
			c.hold(t, "pod to outside, UDP", host("a"), port(outside(true), outsidePort), 40*time.Second, "-udp", "-interval", fast)
		}},
	}
	begun := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		for len(steps) > 0 && time.Since(begun) >= steps[0].after {
			steps[0].begin()
			steps = steps[1:]
		}
		if at := time.Since(begun); at > 20*time.Second && at < 90*time.Second { // changes for the controller
			if err := changeService(ctx, client, n); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// changeService makes a Service, and deletes the one of twenty turns ago.
func changeService(ctx context.Context, client kubernetes.Interface, n int) error {
	services := client.CoreV1().Services("default")
	name := func(n int) string { return fmt.Sprintf("drawn-%d", n) }
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name(n)}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	_ = services.Delete(ctx, name(n-20), metav1.DeleteOptions{}) // the first turns have none
	return err
}
