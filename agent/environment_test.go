package agent

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestEnvironment runs kube-proxy's mode endpoint beside the agent. Readiness, an Event about the
// Node and ovnkube status name it. The node is as ready as without it.
func TestEnvironment(t *testing.T) {
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:10249")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "iptables") })} //nolint:gosec // one client
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	r.createNode()
	r.start()
	testnode.Eventually(t, "a line of /readyz", func() error {
		_, body, err := r.get("/readyz")
		if err == nil && !strings.Contains(body, environment.Prefix+"kube-proxy runs on this node, in mode iptables") {
			err = fmt.Errorf("no fault in %q", body)
		}
		return err
	})
	testnode.Eventually(t, "event", func() error {
		events, err := r.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=node1,reason=" + environment.KubeProxyRuns})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("events %v, want one", events.Items)
		}
		return err
	})
	r.awaitMissing("the controller has not given the node a subnet")
}

// TestOverlapIsWaitedFor gives the host an address inside the pods' network. The agent waits, names
// it in /readyz and for ovnkube status, and changes nothing. It goes on when the address is gone.
func TestOverlapIsWaitedFor(t *testing.T) {
	r := newRig(t)
	testnode.Run(t, "ip", "addr", "add", "10.244.9.9/32", "dev", "eth0")
	r.createNode()
	r.start()
	const text = "network 10.244.0.0/16 of the cluster contains host address 10.244.9.9 on eth0"
	r.awaitMissing(text)
	record, err := status.Read(r.cfg.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	if report := status.Judge(status.Look(t.Context(), record)); !strings.Contains(fmt.Sprintf("%+v", report), text) {
		t.Errorf("status says %+v, want %q", report, text)
	}
	if bridges := testnode.Run(t, "ovs-vsctl", "--db="+r.sw.Address, "list-br"); strings.Contains(bridges, "breth0") {
		t.Errorf("bridges of a node whose address overlaps: %s", bridges)
	}
	testnode.Run(t, "ip", "addr", "del", "10.244.9.9/32", "dev", "eth0")
	r.awaitMissing("the controller has not given the node a subnet")
}
