package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// TestAgentThatCannotRunIsNamed: an agent with a wrong configuration is named in an Event about the
// Node and in ovnkube status; an agent that waits for Open vSwitch also in /readyz. The Events need
// no more than the rights that the chart gives.
func TestAgentThatCannotRunIsNamed(t *testing.T) {
	g := newGuarded(t)
	config := kubetest.Token(t, g.config, "ovn-ebpf", "ovn-ebpf-node", "node1")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	g.must(os.WriteFile(ca, config.CAData, 0o644))

	dir := t.TempDir()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, ovnkube(t), args...)
		cmd.Env = []string{"K8S_APISERVER=" + config.Host, "K8S_TOKEN=" + config.BearerToken, "K8S_CACERT=" + ca, "PATH=" + os.Getenv("PATH")}

		return cmd
	}
	// statusSays returns nil if ovnkube status calls the node broken and has the text.
	statusSays := func(text string) error {
		out, err := command("status", "--run-dir="+dir).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), text) {
			return fmt.Errorf("ovnkube status: %w, want exit status 3 and %q:\n%s", err, text, out)
		}

		return nil
	}

	out, err := command("agent", "--node-name=node1", "--cluster-subnets=10.96.0.0/16", "--k8s-service-cidrs=10.96.0.0/16",
		"--ovsdb=unix:"+dir+"/none", "--run-dir="+dir, "--metrics-bind-address=").CombinedOutput()
	if err == nil {
		t.Errorf("an agent runs whose networks overlap: %s", out)
	}

	g.named("AgentFailed", "overlaps")
	g.must(statusSays("has ended with an error: "))
	g.must(os.Remove(filepath.Join(dir, "agent.json")))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.must(err)

	at := listener.Addr().String()
	g.must(listener.Close())

	waiting := command("container", "await-ovs", "--node-name=node1", "--run-dir="+dir, "--ovs-rundir="+dir, "--metrics-bind-address="+at, "--report-after=500ms")
	waiting.Stderr = t.Output()
	g.must(waiting.Start())
	testnode.Eventually(t, "/readyz", func() error {
		answer, err := http.Get("http://" + at + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()

		body, err := io.ReadAll(answer.Body)
		if answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "the agent waits for Open vSwitch") {
			return fmt.Errorf("%s: %s %w", answer.Status, body, err)
		}

		return nil
	})
	g.must(statusSays("the agent waits for Open vSwitch"))
	g.named("NetworkNotReady", "waits for Open vSwitch")
	cancel()

	_ = waiting.Wait() // killed
}

// named waits for the only Event with the reason: about the Node, with the text.
func (g *guarded) named(reason, text string) {
	testnode.Eventually(g.t, "event "+reason, func() error {
		events, err := g.admin.CoreV1().Events(corev1.NamespaceDefault).List(g.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err == nil && (len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "node1" || !strings.Contains(events.Items[0].Message, text)) {
			err = fmt.Errorf("%v", events.Items)
		}

		return err
	})
}
