package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/nested"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/readiness"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// resync is the interval at which syncNIC and syncPool run without an event.
const resync = 10 * time.Second

// eventPoolInvalid is the reason of the Event about a ConfigMap that cannot be used.
const eventPoolInvalid = "PoolInvalid"

// agent holds the parts of a running agent.
type agent struct {
	cfg     Config
	log     *slog.Logger
	ready   *readiness.Readiness
	cluster *cluster.Cluster
	ports   *ports
	network *nested.Network
	server  *cniserver.Server
	keeper  *podnet.Keeper

	nicWake  loop.Signal // triggers syncNIC
	poolWake loop.Signal // triggers syncPool

	nicFault      atomic.Pointer[string] // error of the last syncNIC, or ""; nil before the first
	reportedFault string                 // the fault of the last Event; owned by the loop of syncPool
}

// Run runs the agent until ctx ends, and then returns nil. It returns an error for faults that
// waiting cannot repair, such as an invalid configuration or an unsupported kernel. On return, the
// node's pods keep working.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}

	const inUnderlay = true // a node whose last agent ran in another mode must be cleaned up first
	if err := status.CheckMode(cfg.RunDir, inUnderlay); err != nil {
		return err
	}

	if err := errors.Join(bpf.Supported(), link.CheckEnterNetns()); err != nil {
		return err
	}

	if _, err := link.AllowSysctls(); err != nil {
		return fmt.Errorf("write sysctls of the network: %w", err)
	}

	a := &agent{
		cfg:      cfg,
		log:      log,
		ready:    readiness.New(log),
		nicWake:  loop.NewSignal(),
		poolWake: loop.NewSignal(),
	}
	if err := a.build(); err != nil {
		return err
	}
	defer a.network.Close()

	if err := status.Write(cfg.RunDir, cfg.record()); err != nil {
		log.Warn("cannot write the record for ovnkube status", "error", err)
	}

	durations := cniserver.NewDurations()
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(a), durations)
	a.buildServer(durations)
	a.addParts()

	var listener net.Listener

	if cfg.MetricsAddr != "" {
		var err error
		if listener, err = endpoint.Listen(cfg.MetricsAddr, cfg.MetricsTLS, log); err != nil {
			return err
		}
	}

	if cfg.Begun != nil {
		cfg.Begun(func() string { return strings.Join(a.ready.Missing(), "; ") })
	}

	return a.run(ctx, listener, registry)
}

// build builds the parts that the CNI server needs.
func (a *agent) build() error {
	var err error
	if a.ports, err = openPorts(a.cfg, time.Now(), a.log); err != nil {
		return err
	}

	a.network = nested.New(a.cfg.PinDir, a.log)
	a.cluster, err = cluster.NewUnderlay(a.cfg.RestConfig, a.cfg.NodeName, cluster.Handlers{
		Node: a.nicWake.Trigger,
		Pool: a.poolWake.Trigger,
		Synced: func() {
			a.poolWake.Trigger()
			a.nicWake.Trigger()
			a.ready.Changed.Trigger()
		},
	}, a.log)

	return err
}

// buildServer builds the server of the CNI plugin and the keeper of pods' interfaces.
func (a *agent) buildServer(durations *cniserver.Durations) {
	interfaces := &podnet.InterfaceManager{
		Connector: connector{a.network, a.ports}, Dir: a.cfg.records(), Observe: durations.ObservePhase,
		OnRemoved: func(host string) { a.ports.releaseHost(host, time.Now()) },
	}
	a.keeper = &podnet.Keeper{
		Interfaces: interfaces,
		Attached:   a.network,
		Gone:       a.cluster.PodLeft,
		Recreate:   true,
		Log:        a.log,
	}
	a.server = cniserver.New(cniserver.Options{
		Socket:       a.cfg.CNISocket,
		Cluster:      a.cluster,
		Source:       source{a.cluster, a.ports},
		Interfaces:   interfaces,
		Keeper:       a.keeper,
		Status:       func() (missing []string, limited bool) { return a.ready.Missing(), a.nicMissing() != "" },
		Observe:      durations.Observe,
		ObservePhase: durations.ObservePhase,
		Log:          a.log,
	})
	a.keeper.Try = a.server.Try
}

// addParts registers the parts for the readiness check.
func (a *agent) addParts() {
	a.ready.Add(a.cluster.Missing)
	a.ready.Add(a.nicMissing)
	a.ready.Add(a.ports.missing)
	a.ready.Add(a.server.Missing)
	a.ready.SetFaults(func() []string {
		if fault := a.ports.staleReason(); fault != "" {
			return []string{environment.Prefix + "the node keeps its last valid pool: " + fault}
		}

		return nil
	})
	a.ready.Complete()
}

// nicMissing returns what the NIC lacks, or "".
func (a *agent) nicMissing() string {
	if s := a.nicFault.Load(); s != nil {
		return *s
	}

	return "NIC: not found yet"
}

// run runs the parts until ctx ends.
func (a *agent) run(ctx context.Context, listener net.Listener, registry *prometheus.Registry) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.serveHTTP(ctx, listener, registry) })
	group.Go(func() error { return a.cluster.Run(ctx) })
	group.Go(func() error { return link.Watch(ctx, a.log, func(string) { a.nicWake.Trigger() }) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name: "NIC", Wake: a.nicWake, Apply: a.syncNIC, Resync: resync, Log: a.log,
		})
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name: "pool", Wake: a.poolWake, Apply: a.syncPool, Resync: resync, Log: a.log,
		})
	})
	group.Go(func() error { return a.keeper.Run(ctx) })
	group.Go(func() error { return a.server.Run(ctx, a.ready.Changed.Trigger) })
	group.Go(func() error { return a.announce(ctx) })

	return group.Wait()
}

// serveHTTP serves /metrics, /healthz and /readyz until ctx ends.
func (a *agent) serveHTTP(ctx context.Context, l net.Listener, registry *prometheus.Registry) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics",
		a.cfg.MetricsTLS.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	a.ready.Register(mux)

	return endpoint.Serve(ctx, l, mux)
}

// announce maintains the node's CNI configuration until ctx ends.
func (a *agent) announce(ctx context.Context) error {
	announcer := cniconf.Announcer{
		Dir:       a.cfg.CNIConfDir,
		Socket:    a.cfg.CNISocket,
		Exclusive: a.cfg.CNIExclusive,
		Log:       a.log,
	}

	return loop.Run(ctx, loop.Options{
		Name: "CNI configuration", Wake: a.ready.Changed, Resync: 5 * time.Second, Log: a.log,
		Apply: func(context.Context) error { return announcer.Step(a.ready.Missing(), time.Now()) },
	})
}

// syncPool takes over the node's ConfigMap into ports, and releases the ports of ADDs that never
// ended.
func (a *agent) syncPool(ctx context.Context) error {
	a.ports.sweep(func(attachment podnet.Attachment) bool {
		_, recorded := a.keeper.Interfaces.Record(attachment.ContainerID, attachment.Interface)
		return recorded
	}, a.server.Try)

	data, published := a.cluster.Pool()
	if !published {
		return nil // the last pool stays; without one, the node is not ready
	}

	err := a.ports.update(data, time.Now())
	a.nicWake.Trigger() // tags and MTU may have changed
	a.ready.Changed.Trigger()

	return a.reportPoolFault(ctx, err)
}

// reportPoolFault writes one Event about each fault of the ConfigMap.
func (a *agent) reportPoolFault(ctx context.Context, fault error) error {
	text := ""
	if fault != nil {
		text = fault.Error()
	}

	if text == a.reportedFault {
		return nil
	}

	if text != "" {
		a.log.Warn("the node's pool is not valid", "error", text)

		if err := a.cluster.Warn(ctx, eventPoolInvalid, text); err != nil {
			return err
		}
	}

	a.reportedFault = text

	return nil
}

// Cleanup removes all traces of the agent from the node: CNI configuration and socket, pods'
// interfaces, programs and records. It is idempotent.
func Cleanup(cfg Config) error {
	var errs []error
	if cfg.CNIConfDir != "" {
		errs = append(errs, cniconf.Remove(cfg.CNIConfDir))
	}

	errs = append(errs, nested.Remove(cfg.PinDir), removeRecords(cfg))
	if n, err := findNIC(cfg.Interface); err == nil && n.Promiscuous {
		errs = append(errs, link.SetPromiscuous(n.Name, false))
	}

	return errors.Join(append(errs, status.Remove(cfg.RunDir))...)
}

// removeRecords removes the files of the agent in its run directory, and its socket.
func removeRecords(cfg Config) error {
	errs := []error{os.RemoveAll(cfg.records())}
	for _, path := range []string{cfg.stateFile(), cfg.CNISocket} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
