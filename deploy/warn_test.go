package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestAgentThatCannotRunIsNamed: an agent with a wrong configuration and an agent that waits for Open
// vSwitch answer neither /readyz nor ovnkube status. With the rights that the chart gives them,
// they write an Event about the Node.
func TestAgentThatCannotRunIsNamed(t *testing.T) {
	g := newGuarded(t)
	config := kubetest.Token(t, g.config, "ovn-ebpf", "ovn-ebpf-node", "node1")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	g.must(os.WriteFile(ca, config.CAData, 0o644))
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, ovnkube(t), args...)
		cmd.Env = []string{"K8S_APISERVER=" + config.Host, "K8S_TOKEN=" + config.BearerToken, "K8S_CACERT=" + ca, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("ovnkube %v succeeds", args)
		}
		return string(out)
	}
	dir := t.TempDir()
	out := run("agent", "--node-name=node1", "--cluster-subnets=10.96.0.0/16", "--k8s-service-cidrs=10.96.0.0/16", "--ovsdb=unix:"+dir+"/none", "--run-dir="+dir)
	out += run("container", "await-ovs", "--node=node1", "--ovs-rundir="+dir, "--report-after=500ms")
	for reason, text := range map[string]string{"AgentFailed": "overlaps", "NetworkNotReady": "waits for Open vSwitch"} {
		events, err := g.admin.CoreV1().Events(corev1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		g.must(err)
		if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "node1" || !strings.Contains(events.Items[0].Message, text) {
			t.Errorf("events %s: %v\n%s", reason, events.Items, out)
		}
	}
}
