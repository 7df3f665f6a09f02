package underlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

func TestRun_givesPodsPortsOfThePool(t *testing.T) {
	r := newRig(t)
	r.start()
	r.awaitReadyz(http.StatusServiceUnavailable, "ConfigMap ovn-ebpf-pools/underlay-vm1")
	r.publish(poolData(t, 2, nil))
	r.awaitReadyz(http.StatusOK, "ok")
	r.checkAnnounced()

	a, b, c := r.createPod("a"), r.createPod("b"), r.createPod("c")
	a.mustCall("ADD")
	b.mustCall("ADD")
	a.mustPing("10.244.0.18")
	b.mustPing("10.244.0.19")
	a.mustCall("ADD") // repeated
	a.mustCall("CHECK")
	r.awaitPorts("used used")

	_, err := c.call("ADD")

	var failed *types.Error
	if !errors.As(err, &failed) || failed.Code != types.ErrTryAgainLater || !strings.Contains(failed.Msg, "no free port on node vm1: 2 of 2 used") {
		t.Errorf("an ADD without a free port: %v", err)
	}

	// DEL identifies the container: that of an earlier sandbox keeps the pod's port.
	earlier := a
	earlier.id = "sandbox-a-earlier"
	earlier.mustCall("DEL")
	a.mustCall("CHECK")

	b.mustCall("DEL")
	r.awaitPorts("used resting")
	c.mustCall("ADD")
	c.mustPing("10.244.0.19")
	b.mustCall("DEL") // late and repeated
	c.mustPing("10.244.0.19")

	r.restartDuringPings(a)
	c.mustCall("CHECK")
	r.awaitPorts("used used")
	r.checkMetrics(`ovnkube_underlay_ports{state="used"} 2`, `ovnkube_underlay_packets_total{direction="tx",reason="host"} `, `ovnkube_agent_ready 1`)

	a.mustCall("DEL")
	c.mustCall("DEL")
	r.awaitPorts("resting resting")

	if left, err := link.PodDevices(); err != nil || len(left) > 0 {
		t.Errorf("devices %v are left, error %v", left, err)
	}
}

// checkAnnounced checks the Node's annotation, and the CNI configuration.
func (r *rig) checkAnnounced() {
	r.t.Helper()
	testnode.Eventually(r.t, "annotation and CNI configuration", func() error {
		node, err := r.client.CoreV1().Nodes().Get(r.t.Context(), "vm1", metav1.GetOptions{})
		if err != nil {
			return err
		}

		got, err := annotation.ParseUnderlay(node.Annotations)
		if err == nil && (got.ID != vif || got.MAC.String() != "fa:16:3e:00:00:0b" || got.Address.String() != "10.0.0.11" || got.MTU != 1500) {
			err = fmt.Errorf("annotation %+v", got)
		}

		_, missing := os.Stat(r.cfg.CNIConfDir + "/10-ovn-kubernetes.conflist")

		return errors.Join(err, missing)
	})

	if l, err := link.Get("eth0"); err != nil || !l.Promiscuous {
		r.t.Errorf("NIC %+v, error %v: want it promiscuous", l, err)
	}
}

// restartDuringPings restarts the agent while a pod pings the VM: no ping is lost.
func (r *rig) restartDuringPings(a sandbox) {
	r.t.Helper()

	ping := exec.Command("nsenter", "--net="+a.netns, "ping", "-n", "-q", "-i0.01", "-c300", "-W2", "10.0.0.11")

	var out strings.Builder

	ping.Stdout = &out
	if err := ping.Start(); err != nil {
		r.t.Fatal(err)
	}

	r.stop()
	r.start()
	r.awaitReadyz(http.StatusOK, "ok")

	if err := ping.Wait(); err != nil || !strings.Contains(out.String(), " 300 received") {
		r.t.Errorf("pings during a restart: %v: %s", err, out.String())
	}
}

func (r *rig) checkMetrics(want ...string) {
	r.t.Helper()

	_, body, err := r.get("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}

	for _, w := range want {
		if !strings.Contains(body, w) {
			r.t.Errorf("metrics lack %s:\n%s", w, body)
		}
	}
}

func TestRun_namesFaultsOfTheNIC(t *testing.T) {
	r := newRig(t)
	testnode.Run(t, "ip", "route", "del", "default")
	r.publish(poolData(t, 2, nil))
	r.start()
	r.awaitReadyz(http.StatusServiceUnavailable, "no default route")

	testnode.Run(t, "ip", "route", "add", "default", "via", "10.0.0.1")
	r.awaitReadyz(http.StatusOK, "ok")

	testnode.Run(t, "ip", "link", "set", "eth0", "mtu", "1399")
	r.awaitReadyz(http.StatusServiceUnavailable, "NIC eth0: its MTU 1399 is smaller than the MTU 1400")
	testnode.Run(t, "ip", "link", "set", "eth0", "mtu", "1400")
	r.awaitReadyz(http.StatusOK, "ok")

	testnode.Run(t, "ip", "link", "add", "twin0", "address", "fa:16:3e:00:00:0b", "type", "veth", "peer", "name", "twin1")
	r.awaitReadyz(http.StatusServiceUnavailable, "2 devices have the MAC address fa:16:3e:00:00:0b: eth0, twin0")
	testnode.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	testnode.Run(t, "ip", "link", "set", "twin0", "master", "br0")
	r.awaitReadyz(http.StatusOK, "ok") // a port of a bridge, and the bridge, which has its address
	testnode.Run(t, "ip", "link", "del", "br0")
	r.awaitReadyz(http.StatusServiceUnavailable, "2 devices have the MAC address")
	testnode.Run(t, "ip", "link", "del", "twin0")
	r.awaitReadyz(http.StatusOK, "ok")

	// A NIC that is recreated gets the programs again.
	a := r.createPod("a")
	a.mustCall("ADD")
	testnode.Run(t, "ip", "link", "del", "eth0")
	r.awaitReadyz(http.StatusServiceUnavailable, "find NIC")
	r.plug()
	r.awaitReadyz(http.StatusOK, "ok")
	a.mustCall("CHECK")
	a.mustPing("10.244.0.18")

	if l, err := link.Get("eth0"); err != nil || !l.Promiscuous {
		t.Errorf("NIC %+v, error %v: want it promiscuous", l, err)
	}

	a.mustCall("DEL")

	r.stop()
	r.cfg.Interface = "eth7"
	r.start()
	r.awaitReadyz(http.StatusServiceUnavailable, "find NIC: device eth7")
}

func TestRun_writesOneEventAboutAnInvalidPool(t *testing.T) {
	r := newRig(t)
	r.publish(poolData(t, 3, nil))
	r.start()
	r.awaitReadyz(http.StatusOK, "ok")

	malformed := poolData(t, 3, nil)
	malformed[annotation.PoolPorts] = strings.Replace(malformed[annotation.PoolPorts], "fa:16:3e:00:01:04", "fa:16", 1)
	r.publish(malformed)
	r.awaitReadyz(http.StatusOK, "degraded: the node keeps its last valid pool: ConfigMap ovn-ebpf-pools/underlay-vm1: parse ports: line 3: mac")
	r.createPod("a").mustCall("ADD")

	malformed["comment"] = "the same fault again"
	r.publish(malformed)

	r.publish(poolData(t, 3, func(n *annotation.Pool, _ []annotation.PoolPort) { n.Node = "vm2" }))
	r.awaitReadyz(http.StatusOK, "it is the pool of node vm2")
	testnode.Eventually(t, "one Event per fault", func() error {
		messages, err := r.events(eventPoolInvalid)
		if err == nil && (len(messages) != 2 || !strings.Contains(strings.Join(messages, "\n"), "line 3: mac")) {
			err = fmt.Errorf("events %q", messages)
		}

		return err
	})

	r.publish(poolData(t, 3, nil))
	testnode.Eventually(t, "no fault", func() error {
		_, body, err := r.get("/readyz")
		if err == nil && body != "ok\n" {
			err = errors.New(body)
		}

		return err
	})
}

// Without the API server, running pods keep working, DEL releases ports, and a restarted agent
// knows its pool.
func TestRun_worksWithoutTheAPIServer(t *testing.T) {
	r := newRig(t)
	r.publish(poolData(t, 2, nil))
	r.start()
	r.awaitReadyz(http.StatusOK, "ok")
	a, b := r.createPod("a"), r.createPod("b")
	a.mustCall("ADD")
	b.mustCall("ADD")
	r.stop()

	r.cfg.RestConfig = rest.CopyConfig(r.cfg.RestConfig)
	r.cfg.RestConfig.Host = "https://127.0.0.1:1"
	r.start()
	r.awaitReadyz(http.StatusServiceUnavailable, "Kubernetes API")
	a.mustPing("10.244.0.18")
	// The agent serves /readyz before the CNI plugin. Until then, a runtime repeats its request.
	testnode.Eventually(t, "DEL", func() error {
		_, err := b.call("DEL")
		return err
	})
	r.awaitPorts("used resting")
}

func TestRun_refusesANodeOfTheOtherMode(t *testing.T) {
	cfg := testConfig(t)
	cfg.RestConfig, cfg.PinDir, cfg.CNISocket = &rest.Config{}, "/nowhere", "/nowhere/cni.sock"

	record := status.Record{Node: "vm1", Wiring: status.Wiring{Mode: "shared", Layout: "direct"}}
	if err := status.Write(cfg.RunDir, record); err != nil {
		t.Fatal(err)
	}

	err := Run(t.Context(), cfg, nil)
	if err == nil || !strings.Contains(err.Error(), "ovnkube agent --cleanup") {
		t.Errorf("on a node in overlay mode: %v", err)
	}
}

func TestCleanup_leavesNothing(t *testing.T) {
	r := newRig(t)
	r.publish(poolData(t, 2, nil))
	r.start()
	r.awaitReadyz(http.StatusOK, "ok")
	a := r.createPod("a")
	a.mustCall("ADD")
	r.stop()

	for range 2 { // it is idempotent
		if err := Cleanup(r.cfg); err != nil {
			t.Fatal(err)
		}
	}

	for _, dir := range []string{r.cfg.RunDir, r.cfg.CNIConfDir, r.cfg.PinDir} {
		if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
			t.Errorf("%s has %v", dir, left)
		}
	}

	if _, err := link.Get(podnet.HostName(a.id, "eth0")); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("the pod's device: %v", err)
	}

	if l, err := link.Get("eth0"); err != nil || l.Promiscuous {
		t.Errorf("NIC %+v, error %v: want it as before", l, err)
	}
}

func TestAgent_tellsEachFaultOnce(t *testing.T) {
	r := newRig(t)

	a := &agent{cfg: r.cfg, log: slog.New(slog.DiscardHandler)}
	if err := a.build(); err != nil {
		t.Fatal(err)
	}

	first, second := errors.New("line 3"), errors.New("line 4")
	for _, fault := range []error{nil, first, first, second, second, nil, nil, second} {
		if err := a.reportPoolFault(t.Context(), fault); err != nil {
			t.Fatal(err)
		}
	}

	messages, err := r.events(eventPoolInvalid)
	slices.Sort(messages)

	if err != nil || !slices.Equal(messages, []string{"line 3", "line 4", "line 4"}) {
		t.Errorf("events %q, error %v", messages, err)
	}
}
