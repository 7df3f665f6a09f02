package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// processEnv makes the test binary a controller: what a crash does can only
// be seen on a process of its own.
const processEnv = "OVN_EBPF_TEST_CONTROLLER"

// processConfig is for the process: what a kubeconfig and flags would say.
type processConfig struct {
	NB, Identity, Metrics string
	Lease                 time.Duration
	Host                  string
	CA, Cert, Key         []byte
	Subnets               []controller.ClusterSubnet
	Frozen                bool // the clock that the lease runs by
}

func TestMain(m *testing.M) {
	text := os.Getenv(processEnv)
	if text == "" {
		os.Exit(tether.Main(kubetest.Shared{M: m}))
	}

	if err := runProcess(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runProcess(text string) error {
	var p processConfig
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}

	api := &rest.Config{Host: p.Host, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA, CertData: p.Cert, KeyData: p.Key}}
	cfg := config(p.NB, api)
	cfg.Identity, cfg.MetricsAddr, cfg.Lease, cfg.ClusterSubnets = p.Identity, p.Metrics, p.Lease, p.Subnets

	cfg.Busy = controller.Pace()
	if p.Frozen {
		cfg.Clock = func() time.Duration { return 0 }
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	return controller.Run(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// replicaProcess is a controller that can crash, on its own way to the API server.
type replicaProcess struct {
	*replica
	identity string
	api      *path
	cmd      *exec.Cmd
}

func startProcess(t *testing.T, w *world, identity string, lease time.Duration) *replicaProcess {
	t.Helper()
	return startProcessWith(t, w, identity, lease, func(*processConfig) {})
}

func startProcessWith(t *testing.T, w *world, identity string, lease time.Duration, change func(*processConfig)) *replicaProcess {
	t.Helper()
	api := newPath(t, strings.TrimPrefix(w.config.Host, "https://"))
	r := &replicaProcess{replica: &replica{t: t, address: freeAddress(t)}, identity: identity, api: api}
	c := processConfig{
		NB: w.nb.Endpoint, Identity: identity, Metrics: r.address, Lease: lease, Host: "https://" + api.address,
		CA: w.config.CAData, Cert: w.config.CertData, Key: w.config.KeyData, Subnets: w.subnets,
	}
	change(&c)

	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(t.TempDir(), identity+".log"))
	if err != nil {
		t.Fatal(err)
	}

	r.cmd = exec.Command(os.Args[0])

	r.cmd.Env = append(os.Environ(), processEnv+"="+string(text))

	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		r.kill()
		log.Close()

		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", identity, text)
		}
	})

	return r
}

// kill ends the process as a crash would.
func (r *replicaProcess) kill() {
	if r.cmd == nil {
		return
	}

	_ = r.cmd.Process.Kill() // an error: it has ended already
	_ = r.cmd.Wait()         // an error: it was killed
	r.cmd = nil
}

// path is a way to a TCP server that can be cut, and whose requests can be delayed.
type path struct {
	t               *testing.T
	address, target string

	late    atomic.Int64 // what requests are delayed by, in ns
	waiting atomic.Int64 // requests' chunks that are delayed now

	mu       sync.Mutex // guards all below
	listener net.Listener
	conns    map[net.Conn]struct{}
}

func newPath(t *testing.T, target string) *path {
	t.Helper()
	p := &path{t: t, address: freeAddress(t), target: target, conns: map[net.Conn]struct{}{}}
	p.mend()
	t.Cleanup(p.cut)

	return p
}

func (p *path) mend() {
	p.t.Helper()

	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}

	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()

	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // cut
			}

			go p.serve(in)
		}
	}()
}

func (p *path) serve(in net.Conn) {
	defer in.Close()

	out, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer out.Close()

	p.mu.Lock()
	if p.listener == nil {
		p.mu.Unlock()
		return
	}

	p.conns[in], p.conns[out] = struct{}{}, struct{}{}

	p.mu.Unlock()
	go func() { // whichever side ends, both do
		p.forward(out, in)
		out.Close()
	}()

	_, _ = io.Copy(in, out)

	p.mu.Lock()
	delete(p.conns, in)
	delete(p.conns, out)
	p.mu.Unlock()
}

// forward copies requests, each chunk as late as it was said when it came.
func (p *path) forward(out io.Writer, in io.Reader) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}

	chunks := make(chan chunk, 1<<16)

	done := make(chan struct{})
	go func() {
		defer close(done)

		for c := range chunks {
			time.Sleep(time.Until(c.due))
			_, _ = out.Write(c.bytes) // the reader ends with the connection

			p.waiting.Add(-1)
		}
	}()

	for {
		buffer := make([]byte, 32<<10)

		n, err := in.Read(buffer)
		if n > 0 {
			p.waiting.Add(1)

			chunks <- chunk{buffer[:n], time.Now().Add(time.Duration(p.late.Load()))}
		}

		if err != nil {
			break
		}
	}

	close(chunks)
	<-done
}

// delay has requests arrive that much later from now on.
func (p *path) delay(d time.Duration) { p.late.Store(int64(d)) }

// flushed waits until no request is delayed.
func (p *path) flushed(t *testing.T) {
	t.Helper()
	nbtest.Eventually(t, "no request is under way", func() bool { return p.waiting.Load() == 0 })
}

// cut ends every connection and refuses new ones.
func (p *path) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.listener == nil {
		return
	}

	p.listener.Close()

	p.listener = nil
	for c := range p.conns {
		c.Close()
	}

	clear(p.conns)
}
