package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint/endpointtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// rig is a VM with an agent. The test plays the controller, the runtime and, at the other end of
// the VM's NIC, the hypervisor.
type rig struct {
	t      testing.TB
	client kubernetes.Interface
	cfg    Config
	stop   func() // ends Run and waits for its return
}

func newRig(t testing.TB) *rig {
	t.Helper()
	server := kubetest.Start(t)

	client, err := kubernetes.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}

	dir, err := os.MkdirTemp("", "vm") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}

	r := &rig{t: t, client: client, stop: func() {}, cfg: Config{
		NodeName: "vm1", RestConfig: server.RestConfig(), VIF: vif, Rest: time.Minute, PinDir: dir + "/bpf/vm1", RunDir: dir + "/run",
		CNISocket: dir + "/run/cni.sock", CNIConfDir: dir + "/net.d", MetricsAddr: "127.0.0.1:9410",
	}}
	if err := os.Mkdir(dir+"/bpf", 0o700); err != nil {
		t.Fatal(err)
	}

	r.plug()
	t.Cleanup(func() {
		r.stop()

		if err := Cleanup(r.cfg); err != nil {
			t.Error(err)
		}

		_ = syscall.Unmount(dir+"/bpf", 0)
		_ = exec.Command("ip", "link", "del", "eth0").Run() // a test may have removed it

		os.RemoveAll(dir)
	})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	return r
}

// plug creates the NIC.
func (r *rig) plug() {
	r.t.Helper()
	peer := testnode.Netns(r.t)
	testnode.Run(r.t, "ip", "link", "add", "eth0", "address", "fa:16:3e:00:00:0b", "type", "veth", "peer", "name", "eth0", "netns", peer)
	testnode.Run(r.t, "ip", "addr", "add", "10.0.0.11/24", "dev", "eth0")
	testnode.Run(r.t, "ip", "link", "set", "eth0", "up")
	testnode.Run(r.t, "nsenter", "--net=/proc/"+peer+"/ns/net", "ip", "link", "set", "eth0", "up")
	testnode.Run(r.t, "ip", "route", "add", "default", "via", "10.0.0.1")
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
}

// publish writes the node's ConfigMap.
func (r *rig) publish(data map[string]string) {
	r.t.Helper()
	maps := r.client.CoreV1().ConfigMaps(annotation.PoolNamespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: annotation.PoolPrefix + r.cfg.NodeName}, Data: data}

	_, err := maps.Create(r.t.Context(), m, metav1.CreateOptions{})
	if err != nil {
		_, err = maps.Update(r.t.Context(), m, metav1.UpdateOptions{})
	}

	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) get(path string) (status int, body string, err error) {
	return endpointtest.Get(r.cfg.MetricsAddr, path)
}

// awaitReadyz waits until /readyz has the status, and contains say.
func (r *rig) awaitReadyz(want int, say string) {
	r.t.Helper()
	testnode.Eventually(r.t, "readyz: "+say, func() error {
		status, body, err := r.get("/readyz")
		if err == nil && (status != want || !strings.Contains(body, say)) {
			err = fmt.Errorf("status %d: %s", status, body)
		}

		return err
	})
}

// createPod creates a pod of the node, and its network namespace.
func (r *rig) createPod(name string) sandbox {
	r.t.Helper()

	pod, err := r.client.CoreV1().Pods("default").Create(r.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: r.cfg.NodeName, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}

	return sandbox{r, "sandbox-" + name, "/proc/" + testnode.Netns(r.t) + "/ns/net", pod}
}

// sandbox is a container with the network namespace of a pod.
type sandbox struct {
	*rig
	id, netns string
	pod       *corev1.Pod
}

func (s sandbox) call(command string) (cni.Response, error) {
	return cni.Call(s.t.Context(), s.cfg.CNISocket, cni.Request{
		Command: command, ContainerID: s.id, Netns: s.netns, Interface: "eth0", Config: []byte(`{"cniVersion":"1.0.0"}`),
		Args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod.Name + ";K8S_POD_UID=" + string(s.pod.UID),
	})
}

func (s sandbox) mustCall(command string) {
	s.t.Helper()

	if _, err := s.call(command); err != nil {
		s.t.Fatalf("%s of %s: %v", command, s.id, err)
	}
}

// mustPing pings a pod from the VM, and the VM from the pod.
func (s sandbox) mustPing(address string) {
	s.t.Helper()

	for _, argv := range [][]string{
		{"ping", "-n", "-c1", "-W5", address},
		{"nsenter", "--net=" + s.netns, "ping", "-n", "-c1", "-W5", "10.0.0.11"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			s.t.Errorf("%s: %v: %s", strings.Join(argv, " "), err, out)
		}
	}
}

// events returns the messages of the Node's Events with a reason.
func (r *rig) events(reason string) (messages []string, err error) {
	list, err := r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.Name == r.cfg.NodeName {
			messages = append(messages, e.Message)
		}
	}

	return messages, nil
}

// awaitPorts waits until the pool has the states, in the order of the tags.
func (r *rig) awaitPorts(want string) {
	r.t.Helper()
	testnode.Eventually(r.t, "ports "+want, func() error {
		ports, err := Pool(r.cfg.RunDir, r.cfg.NodeName, r.cfg.Rest, time.Now())

		var states []string
		for _, p := range ports {
			states = append(states, string(p.State))
		}

		if got := strings.Join(states, " "); err == nil && got != want {
			err = errors.New(got)
		}

		return err
	})
}
