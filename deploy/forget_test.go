package deploy

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestForget: an uninstallation, with the rights that the chart gives it, waits for the controller's
// pods, removes our annotations from a Node, and leaves the others.
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

	env := []string{"K8S_APISERVER=" + config.Host, "K8S_TOKEN=" + config.BearerToken, "K8S_CACERT=" + ca}

	forgetAfterController(t, g, env)

	for _, name := range []string{"node1", "no-such-node"} { // again, and a Node that does not exist
		forget(t, env, name)
	}

	node, err = g.admin.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	g.must(err)

	if !maps.Equal(node.Annotations, others) {
		t.Errorf("annotations are %v, want %v", node.Annotations, others)
	}

	pods, err := g.as("system:serviceaccount:ovn-ebpf:ovn-ebpf-uninstall").CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		t.Errorf("the uninstallation may list pods of all namespaces: %v", pods.Items)
	}
}

// forgetAfterController checks that "node forget" waits for a pod of the controller, and removes
// nothing before this pod is gone.
func forgetAfterController(t *testing.T, g *guarded, env []string) {
	t.Helper()

	ctx := t.Context()
	pods := g.admin.CoreV1().Pods("ovn-ebpf")

	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "controller", Labels: map[string]string{"app": "ovn-ebpf-controller"}},
		Spec: corev1.PodSpec{
			NodeName:   "node1",
			Containers: []corev1.Container{{Name: "controller", Image: "example.com/controller"}},
		},
	}, metav1.CreateOptions{})
	g.must(err)

	cmd := exec.CommandContext(ctx, ovnkube(t), "node", "forget", "--after-controllers=ovn-ebpf", "node1")
	cmd.Env = env
	cmd.Stderr = os.Stderr

	out, err := cmd.StdoutPipe()
	g.must(err)
	g.must(cmd.Start())

	line, err := bufio.NewReader(out).ReadString('\n')
	if want := "waiting until pod ovn-ebpf/controller on node \"node1\" has ended\n"; err != nil || line != want {
		t.Errorf("ovnkube node forget reports %q (%v), want %q", line, err, want)
	}

	node, err := g.admin.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	g.must(err)

	for _, key := range annotation.OfNodes() {
		if _, exists := node.Annotations[key]; !exists {
			t.Errorf("annotation %s was removed while the controller's pod exists", key)
		}
	}

	g.must(pods.Delete(ctx, "controller", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))

	if err := cmd.Wait(); err != nil {
		t.Errorf("ovnkube node forget --after-controllers: %v", err)
	}
}

func forget(t *testing.T, env []string, name string) {
	t.Helper()

	cmd := exec.Command(ovnkube(t), "node", "forget", name)
	cmd.Env = env

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("ovnkube node forget %s: %v: %s", name, err, strings.TrimSpace(string(out)))
	}
}
