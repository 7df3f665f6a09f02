package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// privilegesEnv makes the test binary only call Run.
const privilegesEnv = "OVNEBPF_TEST_PRIVILEGES"

// TestMain builds the API server, once per machine, before the tests enter a namespace without a
// network.
func TestMain(m *testing.M) {
	if os.Getenv(privilegesEnv) != "" {
		fmt.Println(Run(context.Background(), valid(), slog.New(slog.DiscardHandler)))
		return
	}

	if config := os.Getenv(withoutEBPFEnv); config != "" {
		fmt.Println(runWithoutEBPF(config))
		return
	}

	if config := os.Getenv(agentEnv); config != "" {
		fmt.Println(runAgent(config))
		return
	}

	if !testnode.Inside() {
		if _, err := kube.Build(context.Background(), kube.CacheDir(), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(testnode.Main(kubetest.Shared{M: m}))
}

func TestRun(t *testing.T) {
	r := newRig(t)
	r.start()
	r.awaitMissing(`node1: the API server has no such Node`)
	r.createNode()
	r.awaitMissing("the controller has not given the node a subnet")

	if _, err := os.Stat(filepath.Join(r.cfg.CNIConfDir, cniconf.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("CNI configuration before the node is ready: %v", err)
	}

	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	r.awaitMissing("ovn-controller")
	r.installed(management.Name)
	r.awaitMissing("")
	testnode.Eventually(t, "CNI configuration", func() error {
		_, err := os.Stat(filepath.Join(r.cfg.CNIConfDir, cniconf.File))
		return err
	})
	r.checkNode()
	r.checkPod()
	r.sw.ReportDatapath(t)
	r.awaitZeroSNAT(testnode.AvoidedZeroSNAT(t))

	if _, body, err := r.get("/"); err != nil || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("status page %q, error %v", body, err)
	}

	if _, body, err := r.get("/status.json"); err != nil || !strings.Contains(body, `"layout":"direct"`) || !strings.Contains(body, `"reason":"snat_port"`) || !strings.Contains(body, `"missing":[]`) {
		t.Errorf("status %s, error %v", body, err)
	}

	if _, body, err := r.get("/metrics"); err != nil || !strings.Contains(body, "ovnkube_gateway_packets_total") || !strings.Contains(body, "ovnkube_agent_ready 1") {
		t.Errorf("metrics, error %v:\n%s", err, body)
	}

	r.checkEnd()
}

// awaitZeroSNAT waits for the capability ct_zero_snat. Where it confuses ovs-vswitchd, OVN must not
// use the NAT without effect.
func (r *rig) awaitZeroSNAT(want string) {
	r.t.Helper()
	testnode.Eventually(r.t, "capability ct_zero_snat "+want, func() error {
		if got := r.sw.ZeroSNAT(r.t); got != want {
			return fmt.Errorf("it is %q", got)
		}

		return nil
	})
}

// checkNode checks the node's annotations.
func (r *rig) checkNode() {
	r.t.Helper()
	testnode.Eventually(r.t, "annotations", func() error {
		node, err := r.client.CoreV1().Nodes().Get(r.t.Context(), r.cfg.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}

		gw, err := annotation.ParseGateway(node.Annotations)
		if err != nil {
			return err
		}

		if len(gw.Addresses) != 1 || gw.Addresses[0].String() != "172.30.0.11/24" || len(gw.NextHops) != 1 || gw.NextHops[0].String() != "172.30.0.200" {
			return fmt.Errorf("gateway %+v", gw)
		}

		mac, err := annotation.ParseManagementMAC(node.Annotations)
		if err != nil || mac.String() != "0a:58:0a:f4:01:02" {
			return fmt.Errorf("management port %s: %w", mac, err)
		}

		if id := node.Annotations[annotation.ChassisID]; id != "node1" {
			return fmt.Errorf("chassis %q", id)
		}

		return nil
	})
}

// checkPod adds and deletes a pod, each twice. The pod gets its address only after the plugin's
// call.
func (r *rig) checkPod() {
	r.t.Helper()
	pod := r.createPod("a")

	netns := "/proc/" + testnode.Netns(r.t) + "/ns/net"
	go r.installed(podnet.HostName("sandbox-a", "eth0"))

	answered := make(chan error, 1)

	go func() {
		resp, err := r.call("ADD", pod, netns)
		if err == nil && !strings.Contains(string(resp.Result), `"10.244.1.3/24"`) {
			err = fmt.Errorf("result %s", resp.Result)
		}

		answered <- err
	}()

	r.annotate(annotation.PodNetworks, annotation.FormatPod(annotation.Pod{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.3/24")}, MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 1, 3},
		Gateways: []netip.Addr{netip.MustParseAddr("10.244.1.1")},
	}), pod.Name)

	if err := <-answered; err != nil {
		r.t.Fatal(err)
	}

	for _, command := range []string{"ADD", "CHECK", "DEL", "DEL"} {
		if _, err := r.call(command, pod, netns); err != nil {
			r.t.Errorf("%s: %v", command, err)
		}
	}

	if _, err := r.call("CHECK", pod, netns); err == nil {
		r.t.Error("a deleted pod passes CHECK")
	}
}

// learns is a flow of OVN that learns the endpoint of a Service's client.
const learns = "table=18,priority=100,ct_state=+new+trk,udp,reg9=0/0x40,metadata=0x6,nw_dst=10.244.1.3,tp_dst=8000," +
	"actions=learn(table=78,idle_timeout=3,delete_learned,cookie=0x1,OXM_OF_METADATA[],eth_type=0x800,NXM_OF_IP_SRC[],nw_proto=17,load:0x1->NXM_NX_REG10[14])"

// awaitAffinityFlows waits until the agent has this number of flows on br-int.
func (r *rig) awaitAffinityFlows(want int) {
	r.t.Helper()
	testnode.Eventually(r.t, "flows for session affinity", func() error {
		first, others, err := ovs.OwnFlows(r.t.Context(), r.cfg.OVSRunDir, ovs.IntegrationBridge)
		if err == nil && (first != 0 || others != want) {
			err = fmt.Errorf("%d and %d flows, want %d", first, others, want)
		}

		return err
	})
}

// checkEnd stops the agent, checks that the node keeps working, and cleans up.
func (r *rig) checkEnd() {
	r.t.Helper()
	testnode.Run(r.t, "ovs-ofctl", "-O", "OpenFlow14", "add-flow", "unix:"+r.cfg.OVSRunDir+"/br-int.mgmt", learns)
	r.awaitAffinityFlows(5)
	r.stop()
	r.awaitAffinityFlows(5)

	if _, err := os.Stat(r.cfg.PinDir); err != nil {
		r.t.Errorf("a stopped agent leaves its programs: %v", err)
	}

	for range 2 {
		if err := Cleanup(r.t.Context(), r.cfg, slog.New(slog.DiscardHandler)); err != nil {
			r.t.Fatal(err)
		}
	}

	r.awaitAffinityFlows(0)
	r.awaitZeroSNAT("true")

	if got := r.sw.Vsctl(r.t, "list-ports", "br-int"); got != "" {
		r.t.Errorf("ports %q still exist", got)
	}

	for _, path := range []string{r.cfg.PinDir, r.cfg.CNISocket, filepath.Join(r.cfg.CNIConfDir, cniconf.File)} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("%s still exists: %v", path, err)
		}
	}
}

// Run waits for OVSDB and for the API server.
func TestRunWaitsForDaemons(t *testing.T) {
	r := newRig(t)
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	good := r.cfg
	r.cfg.OVSDB = "unix:" + r.sw.Dir + "/late.sock"
	r.start()
	r.awaitMissing("late.sock")

	if err := os.Symlink(r.sw.Dir+"/db.sock", r.sw.Dir+"/late.sock"); err != nil {
		t.Fatal(err)
	}

	r.installed(management.Name)
	r.awaitMissing("")
	r.stop()

	r.cfg = good
	r.cfg.RestConfig.Host = "https://127.0.0.1:1"
	r.start()
	r.awaitMissing("Kubernetes API")
	testnode.Eventually(t, "gateway without API", func() error {
		_, body, err := r.get("/readyz")
		if strings.Contains(body, "gateway") {
			return errors.New(body)
		}

		return err
	})
}

func TestRun_refusesANodeInUnderlayMode(t *testing.T) {
	cfg := valid()

	cfg.RunDir = t.TempDir()
	if err := status.Write(cfg.RunDir, status.Record{Wiring: status.Wiring{Mode: status.ModeUnderlay}}); err != nil {
		t.Fatal(err)
	}

	err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "ovnkube agent --cleanup") {
		t.Errorf("got %v", err)
	}
}
