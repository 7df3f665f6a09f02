package controller_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

func TestController(t *testing.T) {
	w := newWorld(t)

	r := w.run(t, "first")
	r.waitReady()
	w.createNode(1)
	w.createNode(2)
	w.createPod("a", "node1")
	w.createService()
	t.Log("objects become rows")
	w.awaitRows(
		[4]string{"logical_router", "ovn_cluster_router", "name", "ovn_cluster_router"},
		[4]string{"logical_router", "GR_node2", "options", "chassis=node2"},
		[4]string{"logical_switch_port", "k8s-node1", "addresses", "02:00:00:00:00:01 10.244."},
		[4]string{"logical_switch_port", "default_a", "addresses", "0a:58:0a:f4:"},
		[4]string{"load_balancer", "Service_default/web_TCP_cluster", "vips", "172.30.0.12:30080=10.244.0.3:8080"},
	)

	pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	network, err := annotation.ParsePod(pod.Annotations)
	if err != nil || len(network.Addresses) != 2 || len(network.Gateways) != 2 {
		t.Errorf("pod network %+v, %v, want two addresses and gateways", network, err)
	}

	if !w.holds("logical_switch_port", "default_a", "options", "iface-id-ver="+string(pod.UID)) {
		t.Error("the pod's port does not name its UID")
	}

	checkMetrics(t, r)
	r.waitReady()

	t.Log("a restart writes its term and nothing else")
	r.kill()

	before, written := w.nb.Normal(), w.nb.Transactions()
	r = w.run(t, "second")
	r.waitReady()
	nbtest.Eventually(t, "the second leads", func() bool { return r.metric("ovnkube_controller_leader") == "1" })
	r.waitReady()

	if got := r.metric(`ovnkube_controller_northbound_transactions_total{result="ok"}`); got != "0" {
		t.Errorf("transactions after a restart: %s, want 0", got)
	}

	if diff := cmp.Diff(before, w.nb.Normal()); diff != "" {
		t.Errorf("restart changed the database (-before +after):\n%s", diff)
	}

	if n := w.nb.Transactions() - written; n != 1 {
		t.Errorf("restart: %d transactions, want the term's alone", n)
	}

	if got := r.metric("ovnkube_controller_term"); got != "2" {
		t.Errorf("term of the second replica: %s, want 2", got)
	}

	t.Log("deletion, and what went away without a leader")
	w.deletePod("a")
	nbtest.Eventually(t, "the pod's port is gone", func() bool { return !w.holds("logical_switch_port", "default_a", "name", "a") })
	r.kill()

	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	r = w.run(t, "third")
	nbtest.Eventually(t, "the node's rows are gone", func() bool { return !strings.Contains(w.nb.Dump(), "node2") })
	nbtest.Eventually(t, "its node port is gone", func() bool {
		return !w.holds("load_balancer", "Service_default/web_TCP_cluster", "vips", "172.30.0.12")
	})
	r.waitReady()

	t.Log("a standby takes over and writes its term and nothing else")
	standby := w.run(t, "fourth")
	standby.waitReady()

	if got := standby.metric("ovnkube_controller_leader"); got != "0" {
		t.Errorf("standby leads: %s", got)
	}

	r.kill()
	nbtest.Eventually(t, "the standby leads", func() bool { return standby.metric("ovnkube_controller_leader") == "1" })
	standby.waitReady()

	for series, what := range map[string]string{
		`ovnkube_controller_northbound_transactions_total{result="ok"}`:          "transactions",
		`ovnkube_controller_reconciliations_total{kind="node",result="patched"}`: "annotations of nodes",
		`ovnkube_controller_reconciliations_total{kind="pod",result="patched"}`:  "annotations of pods",
		`ovnkube_controller_northbound_operations_total{operation="insert"}`:     "inserts",
		`ovnkube_controller_northbound_transactions_total{result="error"}`:       "failed transactions",
	} {
		if got := standby.metric(series); got != "0" && got != "" {
			t.Errorf("%s after a takeover: %s, want 0", what, got)
		}
	}

	w.createPod("b", "node1")
	w.awaitRows([4]string{"logical_switch_port", "default_b", "addresses", "0a:58:0a:f4:"})

	t.Log("a database that went away and came back empty is written again")
	w.nb.Kill()
	nbtest.Eventually(t, "not ready without database", func() bool {
		code, body := standby.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, w.nb.Endpoint)
	})
	w.nb.Run()
	w.nb.Nbctl("--all", "destroy", "logical_switch", "--", "--all", "destroy", "load_balancer")
	nbtest.Eventually(t, "ready again", func() bool {
		code, _ := standby.get("/readyz")
		return code == http.StatusOK && w.holds("logical_switch_port", "default_b", "name", "default_b")
	})

	t.Log("what cannot be planned is said on the object, and heals")

	patch := []byte(`{"metadata":{"annotations":{"` + annotation.HostCIDRs + `":"nonsense"}}}`)
	if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	nbtest.Eventually(t, "an event on the node", func() bool {
		events, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=node1,reason=CannotPlan"})
		return err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, annotation.HostCIDRs)
	})
	w.createPod("c", "node1")
}

// checkMetrics: names, help and units are as Prometheus's linter wants them.
func checkMetrics(t *testing.T, r *replica) {
	t.Helper()

	_, body := r.get("/metrics")

	var own strings.Builder

	for line := range strings.Lines(body) {
		if strings.Contains(line, "ovnkube_") {
			own.WriteString(line)
		}
	}

	problems, err := promlint.New(strings.NewReader(own.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}

	for _, series := range []string{
		"ovnkube_controller_leader", "ovnkube_controller_ready", "ovnkube_controller_queue_length",
		`ovnkube_controller_reconciliations_total{kind="node",result="ok"}`,
	} {
		if r.metric(series) == "" {
			t.Errorf("metric %s is not there", series)
		}
	}
}

// What cannot be reached is waited for, and readiness names it.
func TestReadinessNamesWhatIsMissing(t *testing.T) {
	nowhere := freeAddress(t)

	r := start(t, config("tcp:"+nowhere, &rest.Config{Host: "http://" + nowhere}), "lonely")
	for _, want := range []string{"northbound database tcp:" + nowhere, "API server: Get \"http://" + nowhere, "cluster not yet listed"} {
		nbtest.Eventually(t, "readiness says "+want, func() bool {
			code, body := r.get("/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(body, want)
		})
	}

	if code, _ := r.get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d, want 200: waiting is no illness", code)
	}
}
