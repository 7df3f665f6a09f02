package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// changesBegin is the signal at which a replica ends its CPU profile and begins another one, of the
// changes.
const changesBegin = syscall.SIGUSR1

// replica is a controller in a process of its own. Its program is that of the bench (replicaRole).
type replica struct {
	*process.Process
	address string // of /metrics and /readyz
	started time.Time
}

type replicaOptions struct {
	kubeconfig, nb, identity, dir string
	profile                       string // directory for profiles; "": none
}

func startReplica(o replicaOptions) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	r := &replica{address: l.Addr().String()}
	l.Close()

	argv := []string{
		self, replicaRole, "-kubeconfig", o.kubeconfig, "-nb", o.nb, "-identity", o.identity,
		"-metrics", r.address, "-profile", o.profile,
	}
	r.started = time.Now()
	r.Process, err = process.Start(process.Spec{Argv: argv, Log: filepath.Join(o.dir, o.identity+".log"), Tethered: true})

	return r, err
}

// runController runs the controller in a replica's process.
func runController(ctx context.Context, o replicaOptions, metrics string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}

	cfg := controller.Config{
		Hosts:      annotation.TrustAll(),
		RestConfig: rest, NBAddress: o.nb, LeaderElect: true, LeaseNamespace: "kube-system", Identity: o.identity, MetricsAddr: metrics,
		ClusterSubnets: []controller.ClusterSubnet{{Prefix: clusterCIDR, HostLen: hostLen}},
		ServiceCIDRs:   []netip.Prefix{serviceCIDR}, JoinSubnets: []netip.Prefix{joinCIDR},
	}
	cfg.Busy = controller.Pace()
	cfg.SNATPorts.First, cfg.SNATPorts.Last = 49152, 65535

	if o.profile != "" {
		stop, err := profile(o.profile, o.identity)
		if err != nil {
			return err
		}
		defer stop()
	}

	return controller.Run(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})))
}

// profile writes profiles of this process to files in dir: of the CPU until stop is called, and of
// the heap at that time. If the signal changesBegin arrives, it writes both at once, and a second
// CPU profile of the time after it.
func profile(dir, name string) (stop func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}

	end, err := profileCPU(filepath.Join(dir, name+".cpu.pprof"))
	if err != nil {
		return nil, err
	}

	var mu sync.Mutex // guards end

	begin := make(chan os.Signal, 1)

	signal.Notify(begin, changesBegin)
	go func() {
		<-begin
		mu.Lock()
		defer mu.Unlock()

		end()
		profileHeap(filepath.Join(dir, name+".before.heap.pprof"))

		if next, err := profileCPU(filepath.Join(dir, name+".changes.cpu.pprof")); err == nil {
			end = next
		}
	}()

	return func() {
		mu.Lock()
		defer mu.Unlock()

		end()
		profileHeap(filepath.Join(dir, name+".heap.pprof"))
	}, nil
}

func profileHeap(path string) {
	if file, err := os.Create(path); err == nil {
		runtime.GC() // a heap profile shows the state at the last garbage collection

		_ = pprof.WriteHeapProfile(file) // the measurements do not need it
		file.Close()
	}
}

func profileCPU(path string) (end func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}

	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}, nil
}

// get returns the status and the body of an HTTP response of the replica.
func (r *replica) get(ctx context.Context, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		return 0, "", err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)

	return resp.StatusCode, string(body), err
}

// awaitReady waits until the replica is ready: as the leader, when the Northbound database equals
// the cluster; as a standby, when it can take over. With mustLead, it waits for the leader's
// readiness. It returns the time that has passed since the given one.
func (r *replica) awaitReady(ctx context.Context, mustLead bool, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not ready after ten minutes"))
	defer cancel()

	err := r.Await(ctx, "controller", func() error {
		if err := r.ready(ctx); err != nil || !mustLead {
			return err
		}

		m, err := r.metrics(ctx)
		if err != nil {
			return err
		}

		if m["ovnkube_controller_leader"] != 1 {
			return errors.New("on standby")
		}

		return r.ready(ctx) // again: the answer above may be that of a standby
	})

	return time.Since(since), err
}

func (r *replica) ready(ctx context.Context) error {
	code, body, err := r.get(ctx, "/readyz")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("%d %s: %w", code, strings.TrimSpace(body), err)
	}

	return nil
}

// metrics returns the values of all series of /metrics, by name with labels.
func (r *replica) metrics(ctx context.Context) (map[string]float64, error) {
	_, body, err := r.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}

	out := map[string]float64{}

	for line := range strings.Lines(body) {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}

		if v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil {
			out[line[:i]] = v
		}
	}

	return out, nil
}

// transactions returns the number of transactions that the replica has sent.
func transactions(m map[string]float64) float64 {
	return m[`ovnkube_controller_northbound_transactions_total{result="ok"}`] +
		m[`ovnkube_controller_northbound_transactions_total{result="error"}`]
}
