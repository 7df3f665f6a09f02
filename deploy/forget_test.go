package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestForget: an uninstallation, with the rights that the chart gives it, removes our
// annotations from a Node and leaves the others.
func TestForget(t *testing.T) {
	g := newGuarded(t)

	ctx := t.Context()
	for key, o := range chart(t, "-set=uninstall=true", "-show-only=templates/uninstall.yaml") {
		g.must(create(ctx, g.admin, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}))
		t.Log("created", key)
	}

	node, err := g.admin.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	g.must(err)

	others := maps.Clone(node.Annotations)
	if others == nil {
		others = map[string]string{}
	}

	others["example.com/other"] = "stays"

	node.Annotations = maps.Clone(others)
	for _, key := range annotation.OfNodes() {
		node.Annotations[key] = "x"
	}

	_, err = g.admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	g.must(err)
	config := kubetest.Token(t, g.config, "ovn-ebpf", "ovn-ebpf-uninstall", "")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	g.must(os.WriteFile(ca, config.CAData, 0o644))

	for _, name := range []string{"node1", "node1", "no-such-node"} { // again, and where there is none
		forget(t, config, ca, name)
	}

	node, err = g.admin.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	g.must(err)

	if !maps.Equal(node.Annotations, others) {
		t.Errorf("annotations are %v, want %v", node.Annotations, others)
	}

	pods, err := g.as("system:serviceaccount:ovn-ebpf:ovn-ebpf-uninstall").CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		t.Errorf("the uninstallation may list pods: %v", pods.Items)
	}
}

func forget(t *testing.T, config *rest.Config, ca, name string) {
	t.Helper()
	cmd := exec.Command(ovnkube(t), "node", "forget", name)

	cmd.Env = []string{"K8S_APISERVER=" + config.Host, "K8S_TOKEN=" + config.BearerToken, "K8S_CACERT=" + ca}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("ovnkube node forget %s: %v: %s", name, err, strings.TrimSpace(string(out)))
	}
}
