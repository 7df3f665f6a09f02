package metrics

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
)

func newCollector(t *testing.T) *Collector {
	c := New(Source{
		PinDir: t.TempDir(), Ready: func() bool { return true }, Log: slog.New(slog.DiscardHandler),
		Stats: func() gateway.Stats { return gateway.Stats{Repairs: map[string]uint64{"flows": 3}, Listeners: 1} },
		Info:  Info{Backend: "ebpf", Layout: "direct", Datapath: "netdev", Uplink: "eth0"},
	})
	c.ObserveCNI("ADD", false, 50*time.Millisecond)
	c.ObserveCNI("nonsense", true, time.Millisecond)
	return c
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(newCollector(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCollect(t *testing.T) {
	want := `
# HELP ovnkube_agent_ready 1 if the agent has everything in its desired state.
# TYPE ovnkube_agent_ready gauge
ovnkube_agent_ready 1
# HELP ovnkube_gateway_host_listeners Sockets of the host that listen inside the SNAT port range.
# TYPE ovnkube_gateway_host_listeners gauge
ovnkube_gateway_host_listeners 1
# HELP ovnkube_gateway_info 1, with the gateway's kind.
# TYPE ovnkube_gateway_info gauge
ovnkube_gateway_info{backend="ebpf",datapath="netdev",layout="direct",uplink="eth0"} 1
# HELP ovnkube_gateway_repairs_total Corrections of the gateway after it had been right.
# TYPE ovnkube_gateway_repairs_total counter
ovnkube_gateway_repairs_total{part="flows"} 3
`
	c := newCollector(t)
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "ovnkube_agent_ready", "ovnkube_gateway_host_listeners",
		"ovnkube_gateway_info", "ovnkube_gateway_repairs_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(c, "ovnkube_cni_request_duration_seconds"); n != 2 {
		t.Errorf("%d series of CNI requests, want ADD and other", n)
	}
}
