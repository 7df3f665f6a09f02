package sb_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestChassisOfDeletedNodesAreRemoved: a chassis without a Node goes, at the start and when its
// Node is deleted. The others stay. A controller that may not write waits for it.
func TestChassisOfDeletedNodesAreRemoved(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	client := kubernetes.NewForConfigOrDie(kubetest.Start(t).RestConfig())

	for _, name := range []string{"node1", "node2", "gone"} {
		ovn.AddChassis(name)

		if name == "gone" {
			continue
		}

		if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	db := sb.New([]string{ovn.Southbound()}, nb.TLS{}, slog.New(slog.DiscardHandler))

	reader := sb.Reader{DB: db}
	if err := reader.RemoveChassis(t.Context(), "node2", sb.Fence{}); err == nil || !strings.Contains(err.Error(), "node2") {
		t.Errorf("a registered chassis: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- sb.RemoveStale(ctx, client, db, slog.New(slog.DiscardHandler)) }()

	defer func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	left := func(want int) map[string]sb.Chassis {
		t.Helper()

		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			all, err := db.ListChassis(t.Context())
			if err == nil && len(all) <= want {
				return all
			}

			if time.Now().After(deadline) {
				t.Fatalf("chassis %v, %v", all, err)
			}
		}
	}
	if all := left(2); len(all) != 2 || all["gone"].IPs != nil {
		t.Errorf("chassis %v", all)
	}

	if err := client.CoreV1().Nodes().Delete(t.Context(), "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if all := left(1); len(all) != 1 || all["node1"].IPs == nil {
		t.Errorf("chassis %v", all)
	}

	if err := reader.RemoveChassis(t.Context(), "node2", sb.Fence{}); err != nil {
		t.Error(err)
	}
}
