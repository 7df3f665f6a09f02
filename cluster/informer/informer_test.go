package informer_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/informer"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestBehind cuts an informer off from the API server three times, the last time for long. The
// informer must be behind until its copy has the changes of the outage.
func TestBehind(t *testing.T) {
	server := kubetest.Start(t).RestConfig()
	direct := kubernetes.NewForConfigOrDie(server)

	var link kubetest.Link
	link.Cut()

	inf := informer.New(kubernetes.NewForConfigOrDie(link.Config(server)).CoreV1().Namespaces(), informer.Options{
		Name: "namespaces", Example: &corev1.Namespace{}, RetryMax: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	go inf.RunWithContext(t.Context())

	for i, outage := range []time.Duration{0, 2 * time.Second, 8 * time.Second} {
		link.Cut()

		cut := time.Now()

		await(t, "it is behind", func() bool { return inf.Behind() != nil })
		t.Logf("%.1f s after the cut: %v", time.Since(cut).Seconds(), inf.Behind())

		name := fmt.Sprint("meanwhile-", i)

		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := direct.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		for time.Since(cut) < outage {
			if err := inf.Behind(); err == nil {
				t.Fatal("it is not behind, though cut off")
			}

			time.Sleep(10 * time.Millisecond)
		}

		link.Mend()

		mended := time.Now()

		await(t, "it is not behind", func() bool { return inf.Behind() == nil })

		if _, has, _ := inf.GetIndexer().GetByKey(name); !has {
			t.Errorf("it is not behind, and has no %s", name)
		}

		t.Logf("after %.1f s more it is not", time.Since(mended).Seconds())
	}
}

// TestSelect checks that an informer lists and watches only selected objects.
func TestSelect(t *testing.T) {
	server := kubetest.Start(t).RestConfig()
	client := kubernetes.NewForConfigOrDie(server)
	inf := informer.New(client.CoreV1().Namespaces(), informer.Options{
		Name: "namespaces", Example: &corev1.Namespace{}, RetryMax: time.Second, Log: slog.New(slog.DiscardHandler),
		Select:    func(o *metav1.ListOptions) { o.LabelSelector = "wanted" },
		Transform: func(o any) (any, error) { o.(*corev1.Namespace).Annotations = nil; return o, nil },
	})
	make := func(names ...string) {
		for _, name := range names {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"long": "text"}}}
			if strings.HasPrefix(name, "wanted") {
				ns.Labels = map[string]string{"wanted": ""}
			}

			if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	make("before", "wanted-before")

	go inf.RunWithContext(t.Context())

	await(t, "it is not behind", func() bool { return inf.Behind() == nil })
	make("after", "wanted-after")
	await(t, "two are there", func() bool { return len(inf.GetIndexer().ListKeys()) == 2 })

	for _, o := range inf.GetIndexer().List() {
		if ns := o.(*corev1.Namespace); !strings.HasPrefix(ns.Name, "wanted") || ns.Annotations != nil {
			t.Errorf("namespace %s with annotations %v", ns.Name, ns.Annotations)
		}
	}
}

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()

	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
