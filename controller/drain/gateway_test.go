package drain

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestGateway asks a real API server; what the controller would say of routes the test says.
func TestGateway(t *testing.T) {
	client, err := kubernetes.NewForConfig(kubetest.Start(t).RestConfig())
	if err != nil {
		t.Fatal(err)
	}

	nodes := client.CoreV1().Nodes()
	for _, n := range []corev1.Node{node("gw1", "shared"), node("gw2", "shared"), node("a", "")} {
		if _, err := nodes.Create(t.Context(), &n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	says := func(gateways ...string) {
		t.Helper()

		a, err := nodes.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		a.Annotations[annotation.LeavesBy] = annotation.FormatLeavesBy(gateways)
		if _, err := nodes.Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what      string
		leaves    []string // by which a says that its pods leave
		o         Options
		out, err  string
		isDrained bool
	}{
		{"no controller plans", []string{"gw1", "gw2"}, Options{Node: "gw1"}, "pods on a still leave by it", "pods on a still leave by it; the controller", true},
		{"once more, it is planned", []string{"gw2"}, Options{Node: "gw1"}, "done: pods on a leave by other gateways", "", true},
		{"the last one", []string{"gw2"}, Options{Node: "gw2"}, "", "--force does it all the same", false},
		{"the last one all the same", nil, Options{Node: "gw2", Force: true}, "done:", "", true},
		{"back, no controller plans", nil, Options{Node: "gw2", Back: true}, "gateway of gw2 is in use again", "do not leave by it yet", false},
		{"back", []string{"gw1", "gw2"}, Options{Node: "gw1", Back: true}, "done: pods on a may leave by it again", "", false},
		{"back again", []string{"gw1", "gw2"}, Options{Node: "gw1", Back: true}, "done:", "", false},
		{"not the last any more", []string{"gw2"}, Options{Node: "gw1"}, "done:", "", true},
		{"no gateway", nil, Options{Node: "a"}, "", "has no gateway", false},
	} {
		says(step.leaves...)

		var out bytes.Buffer

		step.o.Out, step.o.Timeout = &out, time.Second

		err := Gateway(t.Context(), client, step.o)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) || !strings.Contains(out.String(), step.out) {
			t.Errorf("%s: %v, %q; want %q, %q", step.what, err, out.String(), step.err, step.out)
		}

		n, err := nodes.Get(t.Context(), step.o.Node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if annotation.Drained(n.Annotations) != step.isDrained {
			t.Errorf("%s: annotations %v", step.what, n.Annotations)
		}
	}
}
