package kube_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestRestore: objects that were created are gone, also from the server's caches, a changed one and
// a deleted one are as before, and the addresses and ports of Services are free again. A role is
// not restored.
func TestRestore(t *testing.T) {
	s := kubetest.Start(t)
	client, ctx := kubernetes.NewForConfigOrDie(s.RestConfig()), t.Context()
	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string) {
		t.Helper()

		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(err)
	}
	service := func() {
		t.Helper()

		_, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.77", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30077}},
		}}, metav1.CreateOptions{})
		must(err)
	}
	data := func() map[string]string {
		t.Helper()

		out := map[string]string{}

		for _, version := range []string{"", "0"} { // stored, cached
			list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: version})
			must(err)

			for _, c := range list.Items {
				out[version+c.Name] = c.Data["k"]
			}
		}

		return out
	}

	create("changed")
	create("deleted")

	before, err := s.Content(ctx)
	must(err)

	want := data()

	for range 2 {
		create("created")
		service()

		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "created"}}, metav1.CreateOptions{})
		must(err)
		_, err = client.CoreV1().ConfigMaps("default").Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changed"}, Data: map[string]string{"k": "v"}}, metav1.UpdateOptions{})
		must(err)
		must(client.CoreV1().ConfigMaps("default").Delete(ctx, "deleted", metav1.DeleteOptions{}))
		before, err = s.Restore(ctx, before)
		must(err)

		if diff := cmp.Diff(want, data()); diff != "" {
			t.Errorf("(-before +restored)\n%s", diff)
		}
	}

	_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}}, metav1.CreateOptions{})
	must(err)

	if _, err := s.Restore(ctx, before); !errors.Is(err, kube.ErrBeyond) {
		t.Errorf("error %v, want %v", err, kube.ErrBeyond)
	}
}
