package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint/endpointtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// rig is a node with an agent. The test plays the controller and, for the flows of a port,
// ovn-controller.
type rig struct {
	t      testing.TB
	sw     *testnode.Switch
	client kubernetes.Interface
	cfg    Config
	peer   string // pid of a process in the namespace at the other end of the uplink
	stop   func() // ends Run and waits for its return
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, sw: testnode.StartSwitch(t, true)}
	r.sw.Daemon(t) // the agent waits for it: it must know the connections from before
	r.peer = testnode.Netns(t)
	// A namespace's devices outlive its last process for a while, and a reservation that an agent
	// finds is the host's.
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", "eth0").Run() // a test may have removed it
		testnode.Run(t, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=")
	})
	testnode.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", r.peer)
	testnode.Run(t, "ip", "addr", "add", "172.30.0.11/24", "dev", "eth0")
	testnode.Run(t, "ip", "link", "set", "eth0", "up")
	testnode.Run(t, "ip", "route", "add", "default", "via", "172.30.0.200")
	server := kubetest.Start(t)

	var err error
	if r.client, err = kubernetes.NewForConfig(server.RestConfig()); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(r.sw.Dir+"/bpf", 0o700); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(r.sw.Dir+"/bpf", 0) })

	r.cfg = Config{
		NodeName: "node1", RestConfig: server.RestConfig(), OVSDB: r.sw.Address, OVNRunDir: r.sw.Dir, SBAddress: "tcp:172.30.0.1:6642",
		EncapIP: netip.MustParseAddr("172.30.1.11"), CNISocket: r.sw.Dir + "/run/cni.sock", CNIConfDir: r.sw.Dir + "/net.d",
		Hosts: annotation.TrustAll(),
		Settings: gateway.Settings{
			Wiring: gateway.Wiring{Datapath: "netdev"},
			Cluster: gateway.Cluster{
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
				SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, NodePorts: true, NodePortRange: cluster.PortRange{First: 30000, Last: 32767},
			},
			PinDir: r.sw.Dir + "/bpf/node", RunDir: r.sw.Dir + "/run", OVSRunDir: r.sw.Dir,
		},
		MetricsAddr: "127.0.0.1:9410", CountPods: 250, AvoidNullNAT: true,
	}

	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)

	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	go func() { ended <- Run(ctx, r.cfg, log) }()

	r.stop = func() {
		cancel()

		if err := <-ended; err != nil {
			r.t.Error(err)
		}

		r.stop = func() {}
	}
	r.t.Cleanup(func() { r.stop() })
}

func (r *rig) get(path string) (status int, body string, err error) {
	return endpointtest.Get(r.cfg.MetricsAddr, path)
}

// awaitMissing waits until /readyz contains what, or with "" until the agent is ready.
func (r *rig) awaitMissing(what string) {
	r.t.Helper()
	testnode.Eventually(r.t, "readyz "+what, func() error {
		status, body, err := r.get("/readyz")
		if err != nil {
			return err
		}

		if what == "" && status != http.StatusOK || what != "" && (status != http.StatusServiceUnavailable || !strings.Contains(body, what)) {
			return fmt.Errorf("status %d: %s", status, body)
		}

		return nil
	})
}

func (r *rig) annotate(key, value, pod string) {
	r.t.Helper()

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		r.t.Fatal(err)
	}

	if pod != "" {
		_, err = r.client.CoreV1().Pods("default").Patch(r.t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = r.client.CoreV1().Nodes().Patch(r.t.Context(), r.cfg.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	}

	if err != nil {
		r.t.Fatal(err)
	}
}

// installed marks the port as installed, as ovn-controller does.
func (r *rig) installed(port string) {
	r.t.Helper()
	testnode.Eventually(r.t, "port "+port, func() error {
		return exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "set", "Interface", port, "external_ids:ovn-installed=true").Run()
	})
}

func (r *rig) createNode() {
	r.t.Helper()

	if _, err := r.client.CoreV1().Nodes().Create(r.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName}}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) createPod(name string) *corev1.Pod {
	r.t.Helper()

	pod, err := r.client.CoreV1().Pods("default").Create(r.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: r.cfg.NodeName, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	return pod
}

func (r *rig) call(command string, pod *corev1.Pod, netns string) (cni.Response, error) {
	return cni.Call(r.t.Context(), r.cfg.CNISocket, cni.Request{
		Command: command, ContainerID: "sandbox-" + pod.Name, Netns: netns, Interface: "eth0", Config: []byte(`{"cniVersion":"1.0.0"}`),
		Args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod.Name + ";K8S_POD_UID=" + string(pod.UID),
	})
}
