package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/controlplane"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/raft"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// Run runs the controller until the context ends, and then returns nil. It waits for a database or
// an API server that it cannot reach, and returns an error only for what waiting does not cure.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("invalid configuration: %w", err)
	}
	config := restConfig(cfg.RestConfig)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}
	objects, err := reconcile.NewClient(config)
	if err != nil {
		return err
	}
	endpoints, err := nb.Parse(cfg.NBAddress)
	if err != nil {
		return err
	}
	identity, err := cfg.identity()
	if err != nil {
		return err
	}
	db := nb.New(endpoints, log)
	db.UseTLS(cfg.NBTLS)
	var loop *reconcile.Loop
	servers, err := controlplane.New(controlplane.Options{
		API: cfg.RestConfig, Databases: cfg.Databases, Services: cfg.ServiceCIDRs, Log: log,
		Changed: func(was, now service.ControlPlane) { loop.ServersChanged(was, now) },
	})
	if err != nil {
		return err
	}
	loop = reconcile.New(reconcile.Options{
		Servers: servers.Found,
		Client:  client, Objects: objects, DB: db, Plan: cfg.plan(), Subnets: cfg.subnets(), Election: cfg.election(identity),
		First: cfg.FirstAnnotation, Joined: cfg.Joined, Log: log,
		Chassis: cfg.southbound(log), Busy: cfg.Busy, Identity: identity, Clock: cfg.Clock,
	})
	group, ctx := errgroup.WithContext(ctx)
	if cfg.MetricsAddr != "" {
		listener, err := endpoint.Listen(cfg.MetricsAddr, cfg.MetricsTLS, log)
		if err != nil {
			return err
		}
		log.Info("serving metrics", "address", listener.Addr().String())
		group.Go(func() error {
			return endpoint.Serve(ctx, listener, Handler(loop, cfg.databases(endpoints, log), cfg.MetricsTLS))
		})
	}
	if cfg.Begun != nil {
		cfg.Begun(func() string {
			if err := loop.Ready(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	group.Go(func() error { return db.Run(ctx) })
	group.Go(func() error { return servers.Run(ctx) })
	group.Go(func() error { return loop.Run(ctx) })
	return group.Wait()
}

// restConfig asks for protobuf, which costs the API server and us a fraction
// of JSON, and lifts client-go's limit of five requests a second: a cold start
// annotates every pod.
func restConfig(in *rest.Config) *rest.Config {
	c := rest.CopyConfig(in)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.UserAgent = "ovn-ebpf-controller"
	if c.QPS == 0 && c.RateLimiter == nil {
		c.QPS, c.Burst = 200, 400
	}
	if c.QPS > 0 && c.RateLimiter == nil { // one limit for both clients that are made from it
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
	}
	return c
}

// southbound returns the database with the chassis of nodes; nil if none is configured.
func (c Config) southbound(log *slog.Logger) reconcile.Southbound {
	endpoints, err := nb.Parse(c.SBAddress)
	if c.SBAddress == "" || err != nil { // Validate has said so
		return nil
	}
	db := sb.New(endpoints, c.SBTLS, log)
	if c.ChassisRemover {
		return sb.Reader{DB: db}
	}
	return db
}

// databases shows how the servers of OVN's databases do.
func (c Config) databases(northbound []string, log *slog.Logger) prometheus.Collector {
	all := []raft.Database{raft.Northbound(northbound, c.NBTLS)}
	if endpoints, err := nb.Parse(c.SBAddress); c.SBAddress != "" && err == nil { // Validate has said so
		all = append(all, raft.Southbound(endpoints, c.SBTLS))
	}
	return raft.NewCollector(log, all...)
}

// Metrics returns the metrics that the controller serves.
func Metrics() metric.Table { return append(reconcile.Metrics(), raft.Metrics()...) }

// identity names this replica, in the election and in the database's term.
func (c Config) identity() (string, error) {
	if c.Identity != "" {
		return c.Identity, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this replica: %w", err)
	}
	return fmt.Sprintf("%s_%d", host, os.Getpid()), nil
}

func (c Config) election(identity string) *election.Config {
	if !c.LeaderElect {
		return nil
	}
	return &election.Config{Identity: identity, Namespace: c.LeaseNamespace, Lease: c.Lease}
}

// Handler serves /metrics, /healthz (the process is alive) and /readyz: 503
// with everything that is missing, one a line, until nothing is; then "ok" and a line
// for each owner whose rows are not what its object says, through that object's own fault.
func Handler(loop *reconcile.Loop, databases prometheus.Collector, t endpoint.TLS) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(loop.Collector(), databases, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := loop.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		for _, line := range loop.Failing() {
			fmt.Fprintln(w, line)
		}
	})
	return mux
}
