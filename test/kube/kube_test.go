package kube_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

func TestStart(t *testing.T) {
	bin := kubetest.Binary(t)
	dir := t.TempDir()

	s, err := kube.Start(t.Context(), kube.Options{
		Dir: dir, Binary: bin,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})

	if err := s.Kubeconfig(filepath.Join(dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	v, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}

	if v.GitVersion != kube.Version() {
		t.Errorf("server version %s, want %s", v.GitVersion, kube.Version())
	}

	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), want, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	dual := corev1.IPFamilyPolicyRequireDualStack

	svc, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &dual, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if n := len(svc.Spec.ClusterIPs); n != 2 {
		t.Errorf("service has cluster IPs %v, want one per family", svc.Spec.ClusterIPs)
	}

	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	if s.Alive() {
		t.Error("alive after Stop")
	}

	if left := processes(t, dir); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// processes returns the command lines that name dir.
func processes(t *testing.T, dir string) (found []string) {
	t.Helper()

	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range files {
		b, _ := os.ReadFile(f) // it may have ended meanwhile
		if line := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(line, dir) {
			found = append(found, line)
		}
	}

	return found
}

func TestUnknownRelease(t *testing.T) {
	t.Setenv("OVN_EBPF_KUBERNETES", "v1.2.3")
	dir := t.TempDir()

	_, err := kube.Build(t.Context(), dir, nil)
	if err == nil || !strings.Contains(err.Error(), "OVN_EBPF_KUBERNETES is v1.2.3, want one of v1.35.4, v1.36.3") {
		t.Errorf("error %v", err)
	}

	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
