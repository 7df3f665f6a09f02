package authority

import (
	"io"
	"log/slog"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestSync: Sync creates the Secrets and the ConfigMap, leaves them as they are, and restores a
// deleted one alone. It does not change a Secret that others created.
func TestSync(t *testing.T) {
	client, err := kubernetes.NewForConfig(kubetest.Start(t).RestConfig())
	if err != nil {
		t.Fatal(err)
	}

	ctx, a := t.Context(), New()

	a.Client, a.Namespace, a.Log = client, "network", slog.New(slog.NewTextHandler(io.Discard, nil))
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "network"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	stores := client.CoreV1().Secrets("network")
	stored := func() Data {
		t.Helper()

		out := Data{}

		list, err := stores.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range list.Items {
			out[s.Name] = s.Data
		}

		return out
	}
	sync := func() Data {
		t.Helper()

		if err := a.Sync(ctx); err != nil {
			t.Fatal(err)
		}

		return stored()
	}

	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ovn-ebpf-databases"}, Data: map[string][]byte{"ovnnb-cert.pem": []byte("x")}}
	if _, err := stores.Create(ctx, foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := a.Sync(ctx); err == nil {
		t.Error("no error about a Secret of others")
	}

	if diff := cmp.Diff(Data{foreign.Name: foreign.Data}, stored()); diff != "" {
		t.Errorf("beside a Secret of others (-before +after)\n%s", diff)
	}

	if err := stores.Delete(ctx, foreign.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	first := sync()
	for _, name := range secretNames() {
		if len(first[name]) == 0 {
			t.Errorf("no Secret %s", name)
		}
	}

	if diff := cmp.Diff(first, sync()); diff != "" {
		t.Errorf("changed at once (-first +again)\n%s", diff)
	}

	trust, err := client.CoreV1().ConfigMaps("network").Get(ctx, Trust, metav1.GetOptions{})
	if err != nil || trust.Data[TrustFile] != string(first["ovn-ebpf-central"]["cacert.pem"]) {
		t.Errorf("ConfigMap %v: %v", trust, err)
	}

	if err := stores.Delete(ctx, "ovn-ebpf-databases", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	again := sync()
	if cmp.Equal(again["ovn-ebpf-databases"], first["ovn-ebpf-databases"]) || len(again["ovn-ebpf-databases"]) == 0 {
		t.Error("the deleted Secret is not new")
	}

	for _, of := range []Data{first, again} {
		maps.DeleteFunc(of, func(name string, _ map[string][]byte) bool { return name == "ovn-ebpf-databases" })
	}

	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("others changed (-first +again)\n%s", diff)
	}
}
