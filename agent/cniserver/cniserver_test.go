package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

func TestParseArgsNeedsPod(t *testing.T) {
	for _, tc := range []struct {
		args string
		want cluster.PodRef
		err  bool
	}{
		{"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=u", cluster.PodRef{Namespace: "default", Name: "web", UID: "u"}, false},
		{"K8S_POD_NAMESPACE=default;K8S_POD_NAME=web", cluster.PodRef{Namespace: "default", Name: "web"}, false},
		{"K8S_POD_NAMESPACE=default", cluster.PodRef{Namespace: "default"}, true},
		{"", cluster.PodRef{}, true},
		{";;=;", cluster.PodRef{}, true},
	} {
		got, err := parseArgs(tc.args)
		if got != tc.want || (err != nil) != tc.err {
			t.Errorf("%q: got %+v, error %v", tc.args, got, err)
		}
	}
}

func TestResultInAllVersions(t *testing.T) {
	p := podnet.Pod{
		Netns: "/run/netns/x", Interface: "eth0", MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 0, 3}, MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.0.3/24"), netip.MustParsePrefix("fd00::3/64")},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("fd00::1")},
	}

	got, err := result(p, "vethx", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}

	want := `{"cniVersion":"1.0.0","interfaces":[{"name":"vethx"},{"name":"eth0","mac":"0a:58:0a:f4:00:03","mtu":1400,"sandbox":"/run/netns/x"}],
		"ips":[{"interface":1,"address":"10.244.0.3/24","gateway":"10.244.0.1"},{"interface":1,"address":"fd00::3/64","gateway":"fd00::1"}],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.244.0.1"},{"dst":"::/0","gw":"fd00::1"}]}`

	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}

	for _, v := range []string{"", "0.3.1", "0.4.0", "1.1.0"} {
		if _, err := result(p, "vethx", v); err != nil {
			t.Errorf("version %q: %v", v, err)
		}
	}

	if _, err := result(p, "vethx", "9.9.9"); err == nil {
		t.Error("version 9.9.9: want an error")
	}
}

func TestLocksSerialiseByKey(t *testing.T) {
	l := newLocks()

	release, err := l.acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}

	other, err := l.acquire(t.Context(), "b") // another key does not wait
	if err != nil {
		t.Fatal(err)
	}

	other()

	gone, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := l.acquire(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("held key, cancelled: %v", err)
	}

	next := make(chan struct{})

	go func() {
		r, err := l.acquire(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}

		r()
		close(next)
	}()

	select {
	case <-next:
		t.Error("two holders at the same time")
	default:
	}

	if _, ok := l.try("a"); ok {
		t.Error("try acquired a held key")
	}

	release()
	<-next

	if release, ok := l.try("a"); !ok {
		t.Error("try did not acquire a free key")
	} else {
		release()
	}

	if len(l.held) != 0 {
		t.Errorf("%d locks were not freed", len(l.held))
	}
}

// sourceFunc is a Source without pods: a function that returns the error of an ADD.
type sourceFunc func() error

func (f sourceFunc) Pod(context.Context, cluster.PodRef, podnet.Attachment) (podnet.Pod, error) {
	return podnet.Pod{}, f()
}
func (f sourceFunc) Settled(context.Context, cluster.PodRef, podnet.Pod) error { return f() }

func noGateway() error { return types.NewError(types.ErrTryAgainLater, "no gateway", "") }

// TestSocket calls a server without a cluster: invalid requests must fail before the cluster is
// used.
func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "cni") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)

	socket := filepath.Join(dir, "run", "cni.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(socket, nil, 0o644); err != nil { // left by an agent that was killed
		t.Fatal(err)
	}

	observed := make(chan string, 8)
	s := New(Options{
		Socket: socket, Source: sourceFunc(noGateway), Log: slog.New(slog.DiscardHandler),
		Status:  func() ([]string, bool) { return []string{"node1", "x"}, false },
		Observe: func(command string, failed bool, _ time.Duration) { observed <- command },
	})
	ctx, cancel := context.WithCancel(t.Context())

	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(listening) }) }()

	<-listening

	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, error %v", info.Mode(), err)
	}

	for _, tc := range []struct {
		req  cni.Request
		want string
		code uint
	}{
		{cni.Request{Command: "NONSENSE", Config: []byte("{}")}, "NONSENSE", types.ErrInvalidEnvironmentVariables},
		{cni.Request{Command: "ADD", Config: []byte(`"x"`)}, "CNI configuration", types.ErrDecodingFailure},
		{cni.Request{Command: "ADD", Config: []byte("{}"), Args: "x=y"}, "CNI_ARGS", types.ErrInvalidEnvironmentVariables},
		{cni.Request{Command: "ADD", Config: []byte(`{"cniVersion":"9.9.9"}`), Args: "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}, "1.1.0", types.ErrIncompatibleCNIVersion},
		{cni.Request{Command: "ADD", Config: []byte("{}"), Netns: "/nowhere", Args: "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}, "/nowhere", types.ErrInvalidNetNS},
		{cni.Request{Command: "ADD", Config: []byte(`{"serverSocket":"x"}`)}, "serverSocket", types.ErrInvalidNetworkConfig},
		{cni.Request{Command: "ADD", Config: []byte(`{"ipam":{"type":"host-local"}}`)}, "remove ipam", types.ErrInvalidNetworkConfig},
		{cni.Request{Command: "STATUS", Config: []byte("{}")}, "node1; x", cni.CodeNotAvailable},
		{cni.Request{Command: "ADD", Config: []byte("{}"), Netns: "/proc/self/ns/net", Args: "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}, "gateway", types.ErrTryAgainLater},
	} {
		_, err := cni.Call(t.Context(), socket, tc.req)

		var e *types.Error
		if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(e.Error(), tc.want) {
			t.Errorf("%s: got %v, want code %d and %q", tc.req.Command, err, tc.code, tc.want)
		}

		<-observed
	}

	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	var e *types.Error
	if _, err := cni.Call(t.Context(), socket, cni.Request{}); !errors.As(err, &e) || !strings.Contains(e.Error(), socket) {
		t.Errorf("no agent: got %v, want an error that names the socket", err)
	}
}

// TestStopWaitsForCleanup stops the server during a request that has to clean up.
func TestStopWaitsForCleanup(t *testing.T) {
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)

	socket := filepath.Join(dir, "cni.sock")
	ctx, cancel := context.WithCancel(t.Context())

	var undone atomic.Bool

	s := New(Options{
		Socket: socket, Log: slog.New(slog.DiscardHandler), Observe: func(string, bool, time.Duration) {},
		Source: sourceFunc(func() error {
			cancel()
			time.Sleep(50 * time.Millisecond)
			undone.Store(true)

			return noGateway()
		}),
	})

	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(listening) }) }()

	<-listening

	answered := make(chan error, 1)

	go func() {
		_, err := cni.Call(t.Context(), socket, cni.Request{Command: "ADD", Config: []byte("{}"), Netns: "/proc/self/ns/net", Args: "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"})
		answered <- err
	}()

	if err := <-ended; err != nil {
		t.Error(err)
	}

	if !undone.Load() {
		t.Error("the server stopped before its request")
	}

	if err := <-answered; err == nil || !strings.Contains(err.Error(), "gateway") {
		t.Errorf("the request got no response: %v", err)
	}
}

// TestServersMayOverlap starts a second server before the first has ended.
func TestServersMayOverlap(t *testing.T) {
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)

	socket := filepath.Join(dir, "cni.sock")
	start := func() (stop func()) {
		s := New(Options{Socket: socket, Log: slog.New(slog.DiscardHandler), Observe: func(string, bool, time.Duration) {}})
		ctx, cancel := context.WithCancel(t.Context())

		listening, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- s.Run(ctx, func() { close(listening) }) }()

		<-listening

		return func() {
			cancel()

			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stopFirst := start()
	stopSecond := start()

	stopFirst()

	_, err = cni.Call(t.Context(), socket, cni.Request{Command: "NONSENSE", Config: []byte("{}")})
	if err == nil || !strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("the second server does not answer: %v", err)
	}

	stopSecond()
}

func TestLaterAttemptCancelsEarlier(t *testing.T) {
	a := newAttempts()
	first, endFirst := a.begin(t.Context(), "ns/pod", "c1")

	other, endOther := a.begin(t.Context(), "ns/other", "c9")
	defer endOther()

	began := make(chan func())

	go func() {
		second, end := a.begin(t.Context(), "ns/pod", "c2")
		if second.Err() != nil {
			t.Error("the later sandbox is cancelled")
		}

		began <- end
	}()

	<-first.Done()

	if cause := context.Cause(first); !errors.Is(cause, errLaterSandbox) {
		t.Errorf("cause %v", cause)
	}

	select {
	case <-began:
		t.Error("the later attempt began before the earlier one had ended")
	default:
	}

	endFirst()

	endSecond := <-began

	a.stop("c9")

	if cause := context.Cause(other); !errors.Is(cause, errDeleted) {
		t.Errorf("cause %v", cause)
	}

	endSecond()

	if len(a.all) != 1 {
		t.Errorf("%d attempts were not freed", len(a.all))
	}
}

func TestBandwidth(t *testing.T) {
	for _, tc := range []struct {
		text string
		want uint64
		bad  bool
	}{{"10M", 10e6, false}, {"1k", 1000, false}, {"1Mi", 1 << 20, false}, {"999", 0, true}, {"2P", 0, true}, {"-1M", 0, true}, {"fast", 0, true}, {"", 0, true}} {
		in, out, err := bandwidth(map[string]string{ingressBandwidth: tc.text})
		if in != tc.want || out != 0 || (err != nil) != tc.bad || tc.bad && !strings.Contains(err.Error(), ingressBandwidth) {
			t.Errorf("%q: %d and %d, error %v", tc.text, in, out, err)
		}
	}

	if in, out, err := bandwidth(map[string]string{egressBandwidth: "5M"}); in != 0 || out != 5e6 || err != nil {
		t.Errorf("egress: %d and %d, error %v", in, out, err)
	}
}
