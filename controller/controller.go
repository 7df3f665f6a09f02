package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/apiserver"
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

// Run runs the controller until the context ends, and then returns nil. It waits for a database
// or an API server that it cannot reach. It returns an error only for faults that waiting cannot
// repair, such as an invalid configuration or an HTTP address in use.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("invalid configuration: %w", err)
	}

	restConfig := apiserver.ControllerConfig(cfg.RestConfig)

	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}

	objects, err := reconcile.NewClient(restConfig)
	if err != nil {
		return err
	}

	endpoints, err := nb.Parse(cfg.NBAddress)
	if err != nil {
		return err
	}

	identity, err := election.Identity(cfg.Identity)
	if err != nil {
		return err
	}

	db := nb.New(endpoints, log)
	db.UseTLS(cfg.NBTLS)

	// servers finds the API servers and databases, whose ports no Service gets. It and the loop need
	// each other: loop is set before servers.Run calls Changed.
	var loop *reconcile.Loop

	servers, err := controlplane.New(controlplane.Options{
		API: cfg.RestConfig, Databases: cfg.Databases, Services: cfg.ServiceCIDRs, Log: log,
		Changed: func(was, now service.ControlPlane) { loop.ServersChanged(was, now) },
	})
	if err != nil {
		return err
	}

	loop = reconcile.New(reconcile.Options{
		Servers:         servers.Found,
		Client:          client,
		Objects:         objects,
		DB:              db,
		Plan:            cfg.plan(),
		Subnets:         cfg.subnets(),
		Election:        cfg.election(identity),
		FirstAnnotation: cfg.FirstAnnotation,
		WaitForAgent:    cfg.WaitForAgent,
		Log:             log,
		Chassis:         cfg.southbound(log),
		Busy:            cfg.Busy,
		Identity:        identity,
		Clock:           cfg.Clock,
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
	group.Go(func() error { return returnMemory(ctx) })

	return group.Wait()
}

// southbound returns the database from which chassis of deleted nodes are removed, or nil if none
// is configured.
func (c Config) southbound(log *slog.Logger) reconcile.Southbound {
	endpoints, err := nb.Parse(c.SBAddress)
	if c.SBAddress == "" || err != nil { // Validate has returned the error
		return nil
	}

	db := sb.New(endpoints, c.SBTLS, log)
	if c.ChassisRemover {
		return sb.Reader{DB: db}
	}

	return db
}

// databases returns the collector of the metrics of OVN's databases. northbound are the endpoints
// of the Northbound database.
func (c Config) databases(northbound []string, log *slog.Logger) prometheus.Collector {
	all := []raft.Database{raft.Northbound(northbound, c.NBTLS)}
	if endpoints, err := nb.Parse(c.SBAddress); c.SBAddress != "" && err == nil { // Validate returns other errors
		all = append(all, raft.Southbound(endpoints, c.SBTLS))
	}

	return raft.NewCollector(log, all...)
}

// Metrics returns the table of all metrics that the controller serves.
func Metrics() metric.Table { return append(reconcile.Metrics(), raft.Metrics()...) }

// election returns the configuration of the election; nil: this replica always leads.
func (c Config) election(identity string) *election.Config {
	if !c.LeaderElect {
		return nil
	}

	return &election.Config{Identity: identity, Namespace: c.LeaseNamespace, Lease: c.Lease}
}

// Handler returns a handler of /metrics, /healthz and /readyz. If the controller is ready, /readyz
// lists the owners whose rows differ from the cluster because of their objects (Loop.Failing).
func Handler(loop *reconcile.Loop, databases prometheus.Collector, t endpoint.TLS) http.Handler {
	return endpoint.Handler(endpoint.Pages{
		Collectors: []prometheus.Collector{loop.Collector(), databases},
		Ready:      loop.Ready, Failing: loop.Failing, TLS: t,
	})
}
