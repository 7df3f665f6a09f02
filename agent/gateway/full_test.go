package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// TestFullTablesLeaveGatewayReady checks that Services for which the tables have no room leave the
// gateway ready: it attaches, writes flows and the host's addresses, takes what fits, and says what
// does not. A restarted agent does the same. When other Services go, the rest is served.
func TestFullTablesLeaveGatewayReady(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.sw.Daemon(t)

	const frontends, addresses = 8, 16

	r.s.sizes = bpf.Sizes{"services": frontends, "host_addrs": addresses, "lookup_targets": 1, "sock_frontends": 3, "sock_backends": 2}
	r.objects = map[service.Key]service.Objects{}

	for i := range 40 {
		o := numbered(10*i, 2) // with the address of a load balancer
		o.Service.Spec.ClusterIPs, o.Slices = o.Service.Spec.ClusterIPs[:1], o.Slices[:1]
		r.objects[serviceKey(10*i)] = o
	}

	tables := func() map[string]bpf.Table {
		t.Helper()

		out, err := bpf.Tables(r.s.PinDir)
		if err != nil {
			t.Fatal(err)
		}

		return out
	}
	check := func(t *testing.T) {
		t.Helper()
		r.hostAnswers()

		if err := r.hasFlows(); err != nil {
			t.Error(err)
		}

		if p, ok := r.gw.backend.(*programs); !ok || p.watched.Load() == nil {
			t.Error("the programs are not attached")
		}

		stats := r.gw.Stats()
		if got := tables(); got["services"].Entries != frontends || got["host_addrs"].Entries != addresses || stats.Unwritten["services"] == 0 || stats.Unwritten["host_addrs"] == 0 {
			t.Errorf("tables have %v entries, without room are %v", got, stats.Unwritten)
		}

		for _, table := range []string{"services", "host_addrs"} {
			if want := fmt.Sprintf("table %s is full: %d entries have no room", table, stats.Unwritten[table]); !strings.Contains(stats.Degraded[partTables], want) {
				t.Errorf("degraded: %q, want %q", stats.Degraded[partTables], want)
			}
		}
	}

	r.start()
	r.step("full", check)
	r.stop()
	r.start()
	r.step("restarted", check)
	r.stop()

	for k := range r.objects {
		if len(r.objects) > 1 {
			delete(r.objects, k)
		}
	}

	r.start()
	testnode.Eventually(t, "room for the rest", func() error {
		if why := r.gw.Stats().Degraded[partTables]; why != "" {
			return errors.New(why)
		}

		return nil
	})
}
