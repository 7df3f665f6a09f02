package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestBridged starts the agent in layout bridged on a freshly booted node, then cleans up with a
// configuration that does not name the layout.
func TestBridged(t *testing.T) {
	r := newRig(t)
	r.gatewayAnswers()
	direct := r.cfg
	r.cfg.Layout, r.cfg.Backend = verdict.Bridged, gateway.OpenFlow
	r.cfg.EncapIP = netip.Addr{}
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	r.start()
	r.installed(management.Name)
	r.awaitMissing("")

	addresses := func(device string) string { return testnode.Run(t, "ip", "-4", "addr", "show", "dev", device) }
	if !strings.Contains(addresses("breth0"), "172.30.0.11/24") || strings.Contains(addresses("eth0"), "172.30.0.11/24") {
		t.Errorf("addresses are not on the bridge alone:\n%s%s", addresses("breth0"), addresses("eth0"))
	}

	testnode.Eventually(t, "annotation", func() error {
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), r.cfg.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}

		gw, err := annotation.ParseGateway(node.Annotations)
		if err != nil || gw.InterfaceID != "breth0_node1" || len(gw.Addresses) != 1 || gw.Addresses[0].String() != "172.30.0.11/24" || len(gw.NextHops) != 1 {
			return fmt.Errorf("gateway %+v: %w", gw, err)
		}

		return nil
	})

	if _, body, err := r.get("/metrics"); err != nil || !strings.Contains(body, `ovnkube_gateway_info{backend="openflow",datapath="netdev",layout="bridged",uplink="eth0"} 1`) {
		t.Errorf("metrics, error %v:\n%s", err, body)
	}

	record, err := status.Read(r.cfg.RunDir)
	if err != nil {
		t.Fatal(err)
	}

	r.flowsCounted(func() ([]bpf.Counter, error) { return status.Counters(t.Context(), record.Paths) })
	r.stop()

	if _, err := status.Counters(t.Context(), record.Paths); err == nil {
		t.Error("a stopped agent answers")
	}

	r.flowsCounted(func() ([]bpf.Counter, error) {
		return gateway.ReadFlowCounters(t.Context(), record.Paths.OVSRunDir, record.Wiring.Bridge)
	})

	for range 2 {
		if err := Cleanup(t.Context(), direct, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}

	if !strings.Contains(addresses("eth0"), "172.30.0.11/24") {
		t.Errorf("the uplink lacks its address:\n%s", addresses("eth0"))
	}

	if got := testnode.Run(t, "ip", "route", "show", "default"); !strings.Contains(got, "dev eth0") {
		t.Errorf("default route %s", got)
	}

	if got := r.sw.Vsctl(t, "list-br"); strings.Contains(got, "breth0") {
		t.Errorf("bridges %q still exist", got)
	}
}

// gatewayAnswers gives the peer the address of the default route. A move of the uplink waits for an
// answer from there.
func (r *rig) gatewayAnswers() {
	r.t.Helper()

	for _, args := range []string{"addr add 172.30.0.200/24 dev eth0", "link set eth0 up"} {
		testnode.Run(r.t, append([]string{"nsenter", "-t", r.peer, "-n", "ip"}, strings.Fields(args)...)...)
	}
}

// flowsCounted sends packets from the host and waits until they appear in the counters.
func (r *rig) flowsCounted(read func() ([]bpf.Counter, error)) {
	r.t.Helper()
	testnode.Eventually(r.t, "flows count what the host sends", func() error {
		_ = exec.Command("ping", "-n", "-c1", "-W1", "172.30.0.200").Run() // the request counts, even without a reply

		counters, err := read()
		if err == nil && len(counters) != len(gateway.FlowReasons()) {
			err = fmt.Errorf("%d counters", len(counters))
		}

		if err != nil {
			return err
		}

		i := slices.IndexFunc(counters, func(c bpf.Counter) bool { return c.Reason == "host_out" && c.Port == "host" && c.Packets > 0 })
		if i < 0 || counters[i].Bytes < 42*counters[i].Packets {
			return fmt.Errorf("%+v", counters)
		}

		return nil
	})
}

// The uplink may have been unplugged before the cleanup.
func TestCleanupWithoutUplink(t *testing.T) {
	r := newRig(t)
	r.start()
	testnode.Eventually(t, "gateway", func() error {
		_, body, err := r.get("/readyz")
		if err == nil && (strings.Contains(body, "gateway") || !strings.Contains(r.sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids"), "physnet:breth0")) {
			err = errors.New(body)
		}

		return err
	})
	r.stop()
	testnode.Run(t, "ip", "link", "del", "eth0")

	if err := Cleanup(t.Context(), r.cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	if got := r.sw.Vsctl(t, "list-br"); strings.Contains(got, "breth0") {
		t.Errorf("bridges %q still exist", got)
	}

	if got := testnode.Run(t, "sysctl", "-n", "net.ipv4.ip_local_reserved_ports"); strings.TrimSpace(got) != "" {
		t.Errorf("ports %q are still reserved", got)
	}
}
