package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

// replica is a controller in a process of its own: this program again.
type replica struct {
	*process.Process
	address string // of /metrics and /readyz
	started time.Time
}

type replicaOptions struct {
	kubeconfig, nb, identity, dir string
	profile                       string // address for net/http/pprof; "": none
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
		self, "controller", "-kubeconfig", o.kubeconfig, "-nb", o.nb, "-identity", o.identity,
		"-metrics", r.address, "-profile", o.profile,
	}
	r.started = time.Now()
	r.Process, err = process.Start(process.Spec{Argv: argv, Log: filepath.Join(o.dir, o.identity+".log"), Tethered: true})
	return r, err
}

// runController is what a replica runs: the controller as it is shipped.
func runController(ctx context.Context, o replicaOptions, metrics string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	cfg := controller.Config{
		RestConfig: rest, NBAddress: o.nb, LeaderElect: true, LeaseNamespace: "kube-system", Identity: o.identity, MetricsAddr: metrics,
		ClusterSubnets: []controller.ClusterSubnet{{Prefix: clusterCIDR, HostLen: hostLen}},
		ServiceCIDRs:   []netip.Prefix{serviceCIDR}, JoinSubnets: []netip.Prefix{joinCIDR},
	}
	cfg.SNATPorts.First, cfg.SNATPorts.Last = 49152, 65535
	if o.profile != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		server := &http.Server{Addr: o.profile, Handler: mux, ReadHeaderTimeout: time.Second}
		go func() { _ = server.ListenAndServe() }() // without a profile the bench is as good
		defer server.Close()
	}
	return controller.Run(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})))
}

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

// awaitReady returns how long after its start the database equalled the
// cluster, and, with leading, this replica led.
func (r *replica) awaitReady(ctx context.Context, leading bool, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not ready after ten minutes"))
	defer cancel()
	err := r.Await(ctx, "controller", func() error {
		code, body, err := r.get(ctx, "/readyz")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %s: %w", code, strings.TrimSpace(body), err)
		}
		if !leading {
			return nil
		}
		m, err := r.metrics(ctx)
		if err == nil && m["ovnkube_controller_leader"] != 1 {
			err = errors.New("on standby")
		}
		return err
	})
	return time.Since(since), err
}

// metrics are all series by name with labels.
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

// transactions are those that the replica has sent.
func transactions(m map[string]float64) float64 {
	return m[`ovnkube_controller_northbound_transactions_total{result="ok"}`] +
		m[`ovnkube_controller_northbound_transactions_total{result="error"}`]
}
