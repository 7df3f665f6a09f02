package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// withoutEBPFEnv holds a configuration. The test binary runs the agent with it, as on a kernel
// without bpf(2).
const withoutEBPFEnv = "OVNEBPF_TEST_WITHOUT_EBPF"

func TestFallBack(t *testing.T) {
	why := errors.New("run eBPF gateway: kernel lacks x")
	for _, tc := range []struct {
		layout  verdict.Layout
		noEBPF  error
		backend gateway.Backend
		event   string
		message string
	}{
		{verdict.Direct, nil, gateway.EBPF, "", ""},
		{verdict.Bridged, nil, gateway.EBPF, "", ""},
		{verdict.Direct, why, gateway.EBPF, eventNoGateway, "this node serves no North-South traffic in layout direct: run eBPF gateway: kernel lacks x"},
		{verdict.Dedicated, why, gateway.EBPF, eventNoGateway, "this node serves no North-South traffic in layout dedicated: run eBPF gateway: kernel lacks x"},
		{verdict.Bridged, why, gateway.OpenFlow, eventFallback, "gateway uses OpenFlow flows instead of eBPF: run eBPF gateway: kernel lacks x"},
	} {
		s := fallBack(gateway.Settings{Wiring: gateway.Wiring{Layout: tc.layout, Backend: gateway.EBPF}}, tc.noEBPF)

		event, message := fallbackEvent(s)
		if s.Backend != tc.backend || event != tc.event || message != tc.message {
			t.Errorf("%s, %v: backend %s, event %s %q", tc.layout, tc.noEBPF, s.Backend, event, message)
		}
	}
}

// Without bpf(2), in layout direct, the host stays untouched, pods are served, and the fallback is
// reported.
func TestWithoutEBPF(t *testing.T) {
	r := newRig(t)
	r.createNode()
	api := r.cfg.RestConfig

	cfg, err := json.Marshal(elsewhere{
		Uplink: "eth0", OVSDB: r.cfg.OVSDB, RunDir: r.sw.Dir, MetricsAddr: r.cfg.MetricsAddr,
		Host: api.Host, Token: api.BearerToken, TLS: api.TLSClientConfig,
	})
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("/proc/self/exe", "-test.run", "none")

	cmd.Env = append(os.Environ(), withoutEBPFEnv+"="+string(cfg))

	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	r.awaitMissing("gateway: this node serves no North-South traffic: run eBPF gateway: ")
	testnode.Eventually(t, "event", func() error {
		events, err := r.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=node1,reason=" + eventNoGateway})
		if err == nil && (len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "layout direct")) {
			err = fmt.Errorf("events %v", events.Items)
		}

		return err
	})

	if _, body, err := r.get("/metrics"); err != nil || !strings.Contains(body, `ovnkube_gateway_fallback{backend="ebpf",reason="run eBPF gateway`) {
		t.Errorf("metrics, error %v:\n%s", err, body)
	}

	if got := r.sw.Vsctl(t, "list-br"); strings.Contains(got, "breth0") {
		t.Errorf("the host was changed: bridges %q", got)
	}

	testnode.Eventually(t, "CNI socket", func() error {
		_, err := os.Stat(r.cfg.CNISocket)
		return err
	})
}

// elsewhere is the configuration of another process.
type elsewhere struct {
	Uplink, OVSDB, RunDir, MetricsAddr string
	Host, Token                        string
	TLS                                rest.TLSClientConfig
}

// runWithoutEBPF is the process that TestWithoutEBPF starts.
func runWithoutEBPF(config string) error {
	var e elsewhere
	if err := json.Unmarshal([]byte(config), &e); err != nil {
		return err
	}

	cfg := valid()
	cfg.RestConfig = &rest.Config{Host: e.Host, BearerToken: e.Token, TLSClientConfig: e.TLS}
	cfg.Uplink, cfg.OVSDB, cfg.MetricsAddr = e.Uplink, e.OVSDB, e.MetricsAddr
	cfg.OVSRunDir, cfg.OVNRunDir, cfg.RunDir = e.RunDir, e.RunDir, e.RunDir+"/run"
	cfg.PinDir, cfg.CNISocket = e.RunDir+"/bpf/node", e.RunDir+"/run/cni.sock"
	cfg.Datapath = "system" // the userspace datapath needs a program at each pod

	if err := denyBPF(); err != nil {
		return err
	}

	return Run(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// denyBPF makes bpf(2) fail with ENOSYS in all threads.
func denyBPF() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}

	return nil
}
