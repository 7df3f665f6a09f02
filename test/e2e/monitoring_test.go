package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// notHere lists metrics that do not exist in this lab.
var notHere = map[string]string{
	"ovnkube_gateway_conntrack_failures_total":  "only the kernel's connection tracker counts them",
	"ovnkube_gateway_program_runs_total":        "a sysctl of the whole machine",
	"ovnkube_gateway_program_run_seconds_total": "likewise",
	"ovnkube_gateway_shortcut_mismatch_total":   "the userspace datapath has no shortcuts",
	"ovn_db_cluster_server_id":                  "the lab's databases are standalone servers; TestRaftTyped has others",
	"ovn_db_cluster_server_role":                "likewise",
	"ovn_db_cluster_server_connected":           "likewise",
	"ovn_db_cluster_log_entry_index":            "likewise",
	"ovn_db_cluster_term":                       "likewise",
	"ovn_db_db_size_bytes":                      "the lab's control sockets have other names than OVN's",
}

// testMonitoring: a real Prometheus that scrapes agents and controller finds data for every panel
// and every alert.
func testMonitoring(t *testing.T, c *Cluster) {
	server := prometheus.Start(t,
		c.target(t, "ovn-ebpf-agent", "node1", c.Node(1).MetricsURL), c.target(t, "ovn-ebpf-agent", "node2", c.Node(2).MetricsURL),
		c.target(t, "ovn-ebpf-controller", "central", "http://127.0.0.1:9409/metrics"),
	)
	server.HasAll(t, func(metric string) bool { return notHere[metric] != "" })
}

// target makes a served address reachable for Prometheus, which runs outside the lab's namespaces.
func (c *Cluster) target(t *testing.T, job, on, address string) prometheus.Target {
	t.Helper()

	client, err := c.Client(on)
	if err != nil {
		t.Fatal(err)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		response, err := client.Get(address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()

		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	}))
	t.Cleanup(server.Close)

	return prometheus.Target{Job: job, Instance: on, URL: server.URL}
}
