package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// buildPlugin builds the plugin once for all tests of the package.
var buildPlugin = sync.OnceValues(func() (dir string, err error) {
	if dir := os.Getenv("BIN_DIR"); dir != "" {
		return dir, nil
	}

	if dir, err = os.MkdirTemp("", "plugin"); err != nil {
		return "", err
	}

	out, err := exec.Command("go", "build", "-o", dir, "../cmd/ovn-k8s-cni-overlay").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build plugin: %w: %s", err, out)
	}

	return dir, err
})

// cniRig is a node that is ready for pods, with a runtime: libcni, as in containerd and CRI-O, and
// the plugin binary.
type cniRig struct {
	*rig
	plugins string
	standin *standinController
}

// newCNIRig returns a cniRig with the agent not yet started.
func newCNIRig(t testing.TB) *cniRig {
	t.Helper()

	plugins, err := buildPlugin()
	if err != nil {
		t.Fatal(err)
	}

	r := &cniRig{rig: newRig(t), plugins: plugins}
	// The devices would outlive the switch and disturb the next test.
	t.Cleanup(func() {
		if err := Cleanup(context.Background(), r.cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}

		if err := r.holds(); err != nil {
			t.Error(err)
		}
	})

	r.standin = r.startStandin()
	r.createNode()

	return r
}

// getReady assigns subnets to the node.
func (r *cniRig) getReady() {
	r.t.Helper()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")}), "")
	r.awaitMissing("")
}

// runtime returns a runtime with its own cache directory, in which it remembers attachments.
func (r *cniRig) runtime(cache string) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{r.plugins}, filepath.Join(r.sw.Dir, cache), nil)
}

// network returns the CNI configuration in a version of the specification. extra is added to the
// plugin's part.
func (r *cniRig) network(version, extra string) *libcni.NetworkConfigList {
	r.t.Helper()

	list, err := libcni.ConfListFromBytes([]byte(fmt.Sprintf(
		`{"cniVersion":%q,"name":"ovn-kubernetes","plugins":[{"type":"ovn-k8s-cni-overlay","serverSocket":%q%s}]}`, version, r.cfg.CNISocket, extra)))
	if err != nil {
		r.t.Fatal(err)
	}

	return list
}

// sandbox is a pod sandbox as the kubelet requests it from a runtime.
type sandbox struct {
	*libcni.RuntimeConf
	pod *corev1.Pod
}

// sandbox creates a sandbox with a network namespace for the pod.
func (r *cniRig) sandbox(pod *corev1.Pod, id string) sandbox {
	return sandbox{&libcni.RuntimeConf{
		ContainerID: id, NetNS: "/proc/" + testnode.Netns(r.t) + "/ns/net", IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", pod.Name}, {"K8S_POD_UID", string(pod.UID)}},
	}, pod}
}

func (s sandbox) host() string { return podnet.HostName(s.ContainerID, "eth0") }

// give assigns an address to the pod, as the controller does.
func (r *cniRig) give(pod *corev1.Pod, host byte) string {
	r.t.Helper()

	address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 1, host}), 24)
	r.annotate(annotation.PodNetworks, annotation.FormatPod(annotation.Pod{
		Addresses: []netip.Prefix{address}, MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 1, host}, Gateways: []netip.Addr{netip.MustParseAddr("10.244.1.1")},
	}), pod.Name)

	return address.String()
}

func (r *cniRig) deletePod(name string) {
	r.t.Helper()

	now := int64(0)
	if err := r.client.CoreV1().Pods("default").Delete(r.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		r.t.Fatal(err)
	}
}

// holds returns an error unless the node has exactly the interfaces of these sandboxes.
func (r *cniRig) holds(sandboxes ...sandbox) error {
	var errs []error

	want := map[string]bool{}
	for _, s := range sandboxes {
		want[s.host()] = true
	}

	ports, err := exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "list-ports", "br-int").Output()
	errs = append(errs, err)
	devices, err := exec.Command("ip", "-o", "link", "show", "type", "veth").Output()
	errs = append(errs, err)

	records, err := os.ReadDir(podRecords(r.cfg))
	if !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}

	have := map[string]map[string]bool{"port": {}, "device": {}, "record": {}}
	for _, p := range strings.Fields(string(ports)) {
		have["port"][p] = true
	}

	for line := range strings.Lines(string(devices)) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		have["device"][name] = true
	}

	for _, f := range records {
		have["record"][strings.TrimSuffix(f.Name(), ".json")] = true
	}

	for what, names := range have {
		for n := range names {
			if strings.HasPrefix(strings.TrimPrefix(n, "."), "veth") && !want[n] {
				errs = append(errs, fmt.Errorf("%s %s still exists", what, n))
			}
		}

		for n := range want {
			if !names[n] {
				errs = append(errs, fmt.Errorf("no %s %s", what, n))
			}
		}
	}

	return errors.Join(errs...)
}

func (r *cniRig) mustHold(sandboxes ...sandbox) {
	r.t.Helper()
	testnode.Eventually(r.t, "the node's interfaces", func() error { return r.holds(sandboxes...) })
}

// add calls ADD in the background and returns a channel for its error.
func (r *cniRig) add(ctx context.Context, list *libcni.NetworkConfigList, s sandbox) <-chan error {
	answered := make(chan error, 1)

	go func() {
		_, err := r.runtime("cache").AddNetworkList(ctx, list, s.RuntimeConf)
		answered <- err
	}()

	return answered
}

// awaitPort waits until the sandbox has its port.
func (r *cniRig) awaitPort(s sandbox) {
	r.t.Helper()
	testnode.Eventually(r.t, "port", func() error {
		return exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "get", "Interface", s.host(), "external_ids:iface-id").Run()
	})
}

// wantCode checks the code and part of the text of an error.
func wantCode(t *testing.T, err error, code uint, text string) {
	t.Helper()

	var e *types.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), text) {
		t.Errorf("got %v, want code %d and %q", err, code, text)
	}
}
