package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Typical kubectl commands work in the lab: a Deployment becomes ready, its pods answer with their
// names, the end of a container is reported, a killed stand-in kubelet recovers its pods, and
// deleted pods leave no traces.
func TestPods(t *testing.T) {
	o := labOptions(t, lab.Options{Nodes: 2, Pods: true})

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)

	try := func(host string, argv ...string) (string, error) {
		out, err := l.Typed(t.Context(), host, argv...)
		return strings.TrimSpace(out), err
	}
	kubectl := func(line string, more ...string) string {
		t.Helper()

		out, err := try("central", append(append([]string{"kubectl"}, strings.Fields(line)...), more...)...)
		if err != nil {
			t.Fatalf("kubectl %s %v: %v: %s", line, more, err, out)
		}

		return out
	}
	kubectl("create deployment web --image=web --replicas=2 --port=80")
	kubectl("run client --image=client -- sleep infinity")
	kubectl("rollout status deployment web --timeout=5m")

	if out := kubectl("get deployment web"); !strings.Contains(out, " 2/2 ") {
		t.Errorf("deployment: %s", out)
	}

	kubectl("wait --for=condition=Ready pod/client --timeout=5m")
	client := kubectl("get pod client -o jsonpath={.status.podIP}")

	pods := kubectl("get pods -l app=web -o", `jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\n"}{end}`)
	for _, line := range strings.Split(pods, "\n") {
		name, address, _ := strings.Cut(line, " ")
		within(t, "pod "+name+" answers", func() error {
			out, err := try("pod:default/client", "curl", "-sS", "--max-time", "5", "http://"+address+"/")
			if err == nil && out != name+" answers "+client {
				err = fmt.Errorf("want %s answers %s, not %s", name, client, out)
			}

			return err
		})
	}

	if out := kubectl("logs deployment/web"); !strings.Contains(out, "ready :80") {
		t.Errorf("logs: %s", out)
	}

	if out, err := try("central", "kubectl", "exec", "client", "--", "true"); err == nil || !strings.Contains(out, "use 'ovnlab exec pod:default/client COMMAND'") {
		t.Errorf("exec: %v: %s", err, out)
	}

	kubectl("run once --image=once --restart=Never -- true")
	kubectl("wait --for=jsonpath={.status.phase}=Succeeded pod/once --timeout=5m")

	for _, n := range l.Nodes() {
		if err := l.StopProcess("kubelet-"+n.Name, true); err != nil {
			t.Fatal(err)
		}

		if err := l.StartProcess("kubelet-" + n.Name); err != nil {
			t.Fatal(err)
		}
	}

	kubectl("scale deployment web --replicas=4") // each node runs some: both kubelets are back
	kubectl("rollout status deployment web --timeout=5m")

	if out := kubectl("get pods -l app=web -o jsonpath={.items[*].status.containerStatuses[*].restartCount}"); out != "0 0 0 0" {
		t.Errorf("restarts with a kubelet that was killed: %s", out)
	}

	if after := kubectl("get pod client -o jsonpath={.status.podIP}"); after != client {
		t.Errorf("address of client is %s, was %s", after, client)
	}

	kubectl("delete deployment web --timeout=5m")
	kubectl("delete pod --all --timeout=5m")
	within(t, "no namespace of a pod is left", func() error {
		left, err := netns.List(o.Name + "-p-")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}

		return err
	})
}
