package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

func TestKubeLab(t *testing.T) {
	o := options(t)
	o.Kube = true
	o.CacheDir = os.Getenv("OVN_EBPF_CACHE")

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	client, err := l.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for i, n := range nodes.Items {
		want := l.Node(i + 1)
		if a := n.Status.Addresses; n.Name != want.Name || len(a) != 3 || a[0].Address != want.IP4.String() || a[1].Address != want.IP6.String() {
			t.Errorf("node %d is %s with addresses %v, want %s with %s and %s", i+1, n.Name, a, want.Name, want.IP4, want.IP6)
		}
	}

	if len(nodes.Items) != 2 {
		t.Errorf("%d nodes, want 2", len(nodes.Items))
	}

	svc, err := l.AddService(t.Context(), lab.ServiceSpec{Name: "s", Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}})
	if err != nil {
		t.Fatal(err)
	}

	if len(svc.Spec.ClusterIPs) != 2 || svc.Spec.Ports[0].NodePort == 0 {
		t.Errorf("service has cluster IPs %v and ports %v, want two and a NodePort", svc.Spec.ClusterIPs, svc.Spec.Ports)
	}
	// Without a controller no chassis exists yet: the agent connects nodes.
	if got := mustExec(t, l, "central", "ovn-sbctl", "--bare", "--columns=name", "list", "Chassis"); got != "" {
		t.Errorf("chassis %q before any agent", got)
	}

	if err := l.Down(t.Context()); err != nil {
		t.Fatal(err)
	}

	noResidue(t, o)
}

// A failed Up shows the reason, from the logs of its programs.
func TestFailedUpShowsLogs(t *testing.T) {
	o := options(t)

	o.Cluster, o.BinDir, o.CacheDir = true, t.TempDir(), os.Getenv("OVN_EBPF_CACHE")
	for _, name := range []string{"ovnkube", "ovn-k8s-cni-overlay", "ovnlab"} {
		if err := os.WriteFile(filepath.Join(o.BinDir, name), []byte("#!/bin/sh\necho cannot go on\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	var progress strings.Builder

	o.Progress = &progress
	if _, err := lab.Up(t.Context(), o); err == nil {
		t.Error("a lab without a controller is up")
	}

	for _, want := range []string{"ended with: cannot go on", "node1-ovn-controller ended with: "} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("%q is not in what is shown:\n%s", want, &progress)
		}
	}
}
