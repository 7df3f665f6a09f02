package controller_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestFullDisk fills the disk under the Northbound database. Readiness and one Event name the disk,
// no object is blamed, and everything is written once there is space.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)

	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount (needs root): %v", err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", dir)
	w.nb = nbtest.Start(t)
	cfg := config(w.nb.Endpoint, w.config)
	cfg.Lease = 2 * time.Second
	r := start(t, cfg, "one")
	nbtest.Eventually(t, "the database claimed", func() bool {
		return w.nb.Nbctl("--bare", "--columns=name", "find", "Address_Set", "name=ovn-ebpf-leader") != ""
	})
	r.waitReady()

	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("2 MiB were written to 1 MiB")
	}

	const services = 20
	for i := range services {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("full%d", i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if _, err := w.client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	const text = "the database server cannot write its file"

	nbtest.Eventually(t, "a line of /readyz about the disk", func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, text) && strings.Contains(body, "free space on its disk")
	})
	nbtest.Eventually(t, "an Event about the Lease", func() bool {
		events, err := w.client.CoreV1().Events("kube-system").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ControllerNotReady"})
		if err != nil {
			t.Fatal(err)
		}

		return len(events.Items) == 1 && events.Items[0].InvolvedObject.Kind == "Lease" && strings.Contains(events.Items[0].Message, text)
	})

	blamed, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=CannotWrite"})
	if err != nil || len(blamed.Items) > 0 {
		t.Errorf("objects are blamed for the disk: %v, %v", blamed.Items, err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	r.waitReady()

	if rows := w.nb.Nbctl("--bare", "--columns=external_ids", "list", "Load_Balancer"); strings.Count(rows, "service/default/full") < services {
		t.Errorf("load balancers are missing: %s", rows)
	}
}
