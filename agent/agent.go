package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/cniserver"
	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/shadow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/healthcheck"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/metrics"
	"github.com/ovn-ebpf/ovn-ebpf/agent/neighbour"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/readiness"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/controlplane"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// agent holds the parts of a running agent and their shared state. Each part is a loop of its own,
// which runs in its own goroutine. The parts know each other only by the functions that follow and
// build give them.
type agent struct {
	cfg      Config // with the settings completed by Run
	detected detected
	log      *slog.Logger

	// What the node reports: /readyz, the status page, and Events about faults. Run builds these.
	ready       *readiness.Readiness
	page        *page.Page
	environment *environment.Watch

	// Sources about the cluster. follow builds them.
	cluster *cluster.Cluster
	servers *controlplane.Finder

	// Parts that need Open vSwitch. openOVS opens the client, and build builds the others.
	ovs        *ovs.Client
	gateway    *gateway.Gateway
	shortcuts  *gateway.ShortcutManager
	affinity   *ovs.AffinityFlows
	management *management.Port
	responder  *responder
	neighbours *neighbour.Resolver
	health     *healthcheck.Server
	refused    *refusals
	shadow     *shadow.Shadow    // nil: comparison is off
	hostSent   *metrics.HostSent // nil except in layout direct, where no program sees what the host sends

	// Signals that wake the agent's own loops.
	nodeWake    loop.Signal // for keepAnnotations: the Node, or its desired annotations, have changed
	ovsWake     loop.Signal // for keepSettings: the settings in OVS, or their inputs, have changed
	podsWake    loop.Signal // for podnet.Keeper: the controller's annotation of a pod has changed
	forwardWake loop.Signal // for watchForward: a probe through the hook forward is due

	// Results of loops that other goroutines read.
	chassis      atomic.Pointer[chassis] // as last written to OVS; not nil after openOVS
	mtu          atomic.Int64            // of pods; 0 while unknown
	nodeFault    atomic.Pointer[string]  // error of the last syncNode, or ""; nil before the first
	forwardFault atomic.Pointer[string]  // result of the probes, "" without a fault; nil before the first

	// The loop of syncNode owns these.
	noLeftovers bool                                    // leftovers of local gateway mode are removed
	redirected  map[verdict.ServiceKey]service.Redirect // redirects of local gateway mode
}

// detected says which settings are not configured, so the agent detected them at its start.
type detected struct{ uplink, datapath bool }

// Run runs the node agent. It returns nil when ctx ends. It returns an error for faults that
// waiting cannot repair: an invalid cfg, a kernel without a required feature, a missing uplink. On
// return, the node's network keeps working.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}

	const underlay = false
	if err := status.CheckMode(cfg.RunDir, underlay); err != nil {
		return err
	}

	// A kernel without eBPF has a fallback, but an agent without privileges cannot work at all.
	noEBPF, noNetns := bpf.Supported(), link.CheckEnterNetns()
	if errors.Is(noEBPF, bpf.ErrPrivilege) {
		return errors.Join(noEBPF, noNetns)
	}

	if noNetns != nil {
		return noNetns
	}

	if err := allowSysctls(log); err != nil {
		return err
	}

	if err := awaitMove(ctx, cfg.RunDir, log); err != nil {
		return nil //nolint:nilerror // ctx has ended
	}

	settings, err := gatewaySettings(cfg, log)
	if err != nil {
		return err
	}

	if err := gateway.CheckHost(settings); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}

	a := &agent{
		cfg:         cfg,
		detected:    detected{uplink: cfg.Uplink == "", datapath: cfg.Datapath == ""},
		log:         log,
		ready:       readiness.New(log),
		nodeWake:    loop.NewSignal(),
		ovsWake:     loop.NewSignal(),
		podsWake:    loop.NewSignal(),
		forwardWake: loop.NewSignal(),
	}

	a.cfg.Settings = fallBack(settings, noEBPF)
	a.page = page.New(a.ready.Missing)

	if err := a.follow(); err != nil {
		return err
	}

	return a.start(ctx)
}

// start serves HTTP and watches the environment while run starts and runs the other parts, so the
// node's state is also visible while a part waits.
func (a *agent) start(ctx context.Context) error {
	registry := prometheus.NewRegistry()

	listener, err := a.cfg.listen(a.log)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	// The copy of the configuration is needed because openOVS completes the settings meanwhile.
	cfg := a.cfg

	group.Go(func() error { return cfg.serveHTTP(ctx, listener, a.ready, registry, a.page) })

	if cfg.Begun != nil {
		cfg.Begun(func() string { return strings.Join(a.ready.Missing(), "; ") })
	}

	group.Go(func() error { return a.environment.Run(ctx) })
	group.Go(func() error {
		err := a.run(ctx, registry)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil
		}

		return err
	})

	return group.Wait()
}

// run connects to OVS, builds the parts and runs them.
func (a *agent) run(ctx context.Context, registry *prometheus.Registry) error {
	a.record()

	// The host's addresses can change, so the agent waits until they do not overlap.
	overlap := func() error { return gateway.CheckOverlap(a.cfg.Settings) }
	if err := loop.Insist(ctx, a.ready.Starting, overlap); err != nil {
		return err
	}

	if err := a.openOVS(ctx); err != nil {
		return err
	}
	defer a.ovs.Close()

	a.build()

	durations := cniserver.NewDurations()
	registry.MustRegister(metrics.New(a.source()), durations)
	a.page.Set(a.pageSource())

	server, keeper, steal, err := a.cniServer(durations)
	if err != nil {
		return err
	}

	if steal != nil { // only the userspace datapath has this program
		defer steal.Close()
	}

	a.addParts()
	a.ready.Add(server.Missing)
	a.ready.Complete()

	return a.runParts(ctx, server, keeper)
}

// openOVS connects to ovsdb-server, which it waits for. It completes the settings of the gateway
// from the database, takes the node over from an earlier network if there is one, and writes the
// settings for ovn-controller. On an error, the connection is closed.
func (a *agent) openOVS(ctx context.Context) error {
	err := loop.Insist(ctx, a.ready.Starting, func() (err error) {
		dial, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()

		a.ovs, err = ovs.Dial(dial, a.cfg.OVSDB)

		return err
	})
	if err != nil {
		return err
	}

	// The errors of resolve are permanent. Those of the other steps are retried.
	a.cfg.Settings, err = resolve(ctx, a.cfg.Settings, a.ovs)
	if err != nil {
		a.ovs.Close()
		return err
	}

	a.record()

	err = loop.Insist(ctx, a.ready.Starting, func() error {
		return errors.Join(gateway.Recover(ctx, a.cfg.Settings, a.ovs),
			gateway.RecordTakeover(ctx, a.cfg.Settings, a.ovs, a.log))
	})
	if err != nil {
		a.ovs.Close()
		return err
	}

	err = loop.Insist(ctx, a.ready.Starting, func() error {
		return a.syncOVS(ctx)
	})
	if err != nil {
		a.ovs.Close()
	}

	return err
}

// follow builds what reads the cluster, and the watch for faults of the environment. The handlers
// refer to parts that only build sets: they are not called before a.cluster runs, as a part of
// runParts.
func (a *agent) follow() error {
	var err error

	api := a.cfg.API(a.log)

	a.cluster, err = cluster.New(api, a.cfg.NodeName, a.cfg.Hosts, cluster.Handlers{
		Node: func() {
			a.gateway.Trigger() // for its zone and addresses
			a.environment.Trigger()
			a.nodeWake.Trigger()
			a.ovsWake.Trigger() // another node may keep the system-id
			a.ready.Changed.Trigger()
		},
		Readdressed: func() { a.podsWake.Trigger() },
		APIServers:  func() { a.gateway.Trigger() },
		Peers: func() {
			a.gateway.Inputs().PeersChanged()
			a.nodeWake.Trigger() // for hostsInPodTunnels
			a.ovsWake.Trigger()  // another node may keep the system-id, or no longer
		},
		Service: func(k service.Key) {
			a.gateway.Services().Changed(k)
			a.health.Changed(k)
		},
		Synced: func() {
			a.gateway.Trigger()
			a.health.Synced()
			a.nodeWake.Trigger()
			a.ready.Changed.Trigger()
		},
	}, a.log)
	if err != nil {
		return err
	}

	a.servers, err = controlplane.New(controlplane.Options{
		API: a.cfg.RestConfig, Databases: a.cfg.Databases, Services: a.cfg.ServiceCIDRs, Log: a.log,
		Changed: func(model.ControlPlane, model.ControlPlane) { a.gateway.Trigger() },
	})
	if err != nil {
		return err
	}

	return a.watchEnvironment(api)
}

// build builds the parts that need Open vSwitch.
func (a *agent) build() {
	a.shortcuts = gateway.NewShortcutManager(a.cfg.Settings, a.ovs, a.log)
	a.refused = newRefusals(a.cfg.NodeName, a.cluster, a.log)
	a.gateway = gateway.New(gateway.Options{
		Settings: a.cfg.Settings, OVS: a.ovs, ShortcutManager: a.shortcuts, Log: a.log,
		Source: gateway.Source{
			Node: a.cfg.NodeName, Keys: a.cluster.Keys, Objects: a.cluster.Objects, Zone: a.cluster.Zone,
			Nodes: a.cluster.Nodes,
			Peers: a.cluster.Peers, Addresses: a.cluster.Addresses, TrustedHosts: a.cluster.TrustedHosts,
			ControlPlane: a.controlPlane,
			Refused:      a.refused.set,
		},
		Changed: func() {
			a.nodeWake.Trigger()
			a.ovsWake.Trigger()
			a.neighbours.Trigger()
			a.environment.Trigger()
			a.ready.Changed.Trigger()
		},
		BudgetChanged: func(k service.Key) { a.health.Changed(k) },
	})
	a.health = healthcheck.New(healthcheck.Options{
		Node:    a.cfg.NodeName,
		Keys:    a.cluster.Keys,
		Objects: a.servedObjects,
		Healthy: func() bool { return a.serves() && !a.cluster.Drained() },
		Warn:    a.cluster.WarnService,
		Log:     a.log,
	})
	a.management = management.New(management.Options{
		OVS:      a.ovs,
		Node:     a.cfg.NodeName,
		Bridge:   ovs.IntegrationBridge,
		Datapath: a.cfg.Datapath,
		RunDir:   a.cfg.OVSRunDir,
		Cluster:  a.cfg.PodCIDRs,
		Log:      a.log,
		Changed: func() {
			a.environment.Trigger()
			a.ready.Changed.Trigger()
		},
	})
	a.affinity = ovs.NewAffinityFlows(a.cfg.OVSRunDir, ovs.IntegrationBridge, a.environment.Trigger)
	a.responder = a.newResponder()
	a.shadow = a.newShadow()
	a.neighbours = neighbour.New(neighbour.Options{
		OVS:       a.ovs,
		RunDir:    a.cfg.OVSRunDir,
		Bridge:    a.cfg.Bridge,
		Tunnels:   a.cfg.Userspace(),
		NextHops:  a.sharedNextHops,
		PatchPort: func(ctx context.Context) (uint32, error) { return gateway.PatchPort(ctx, a.ovs, a.cfg.Bridge) },
		Changed: func() {
			a.environment.Trigger()
			a.nodeWake.Trigger()
		},
		Log: a.log,
	})

	if s := a.cfg.Settings; !s.NoGateway && s.Layout == verdict.Direct {
		a.hostSent = &metrics.HostSent{
			Device: func() (packets, bytes uint64, err error) { return link.Sent(a.cfg.Uplink) },
		}
	}
}

// newShadow returns the comparison of the programs' decisions with the model, or nil if it is off
// or flows decide instead of programs.
func (a *agent) newShadow() *shadow.Shadow {
	if a.cfg.ShadowRate == 0 || a.cfg.NoGateway {
		return nil
	}

	if a.cfg.Backend != gateway.EBPF {
		a.log.Warn("decisions of flows cannot be compared with the model")
		return nil
	}

	return shadow.New(shadow.Options{PinDir: a.cfg.PinDir, Rate: uint32(a.cfg.ShadowRate), Log: a.log})
}

// controlPlane returns the addresses of API servers and OVN databases: those that the configuration
// names, and those in the slices of default/kubernetes.
func (a *agent) controlPlane() model.ControlPlane {
	return a.servers.Found().With(a.cluster.APIServers(a.cfg.ServiceCIDRs))
}

// servedObjects returns the objects of a key, or none if a budget refuses them: their health check
// would draw a load balancer's traffic to a node that refuses it.
func (a *agent) servedObjects(k service.Key) service.Objects {
	if a.gateway.Services().OverBudget(k) {
		return service.Objects{}
	}

	return a.cluster.Objects(k)
}

// addParts registers the lines of the parts in /readyz, and the checks of faults.go. The order is
// that of the lines.
func (a *agent) addParts() {
	a.ready.Add(func() string {
		if !a.ovs.Connected() {
			return "OVSDB " + a.cfg.OVSDB + ": not connected"
		}

		return ""
	})
	a.ready.Add(a.gateway.View().Missing)
	a.ready.Add(a.cluster.Missing)
	a.ready.Add(func() string {
		if s := a.nodeFault.Load(); s != nil {
			return *s
		}

		return ""
	})
	a.ready.Add(a.unpublishedLine)
	a.ready.Add(a.chassisTaken)
	a.ready.Add(a.management.Missing)
	a.environment.Add(a.addressGone, a.addressDiffers, a.routesRemoved, a.nextHopDiffers, a.chassisTakenFault,
		a.chassisDiffers, a.networksOverlap, a.defaultRouteElsewhere, a.noIPv4NextHop, a.noIPv6NextHop,
		a.kernelDatapathUnused, a.kernelDatapathMissing, a.otherNetworkFirst, a.certificateInvalid,
		a.affinityLosesPackets, a.forwardDropped, clusterNotFollowed(a.cluster.Behind))
}

// runParts runs all parts until ctx ends or one of them fails, which ends the others. The parts
// start in no particular order: each one waits for what it needs.
func (a *agent) runParts(ctx context.Context, server *cniserver.Server, keeper *podnet.Keeper) error {
	parts := []func(context.Context) error{
		// the cluster, and the connections to the API server
		a.cluster.Run,
		a.servers.Run,
		a.followAddresses,

		// the node's settings
		a.keepSettings,
		a.keepAnnotations,
		a.watchController,
		a.announce,

		// traffic of the node
		a.gateway.Run,
		a.shortcuts.Run,
		a.affinity.Run,
		a.management.Run,
		a.responder.Run,
		a.neighbours.Run,

		// pods
		func(ctx context.Context) error { return server.Run(ctx, a.ready.Changed.Trigger) },
		keeper.Run,

		// health checks of load balancers, and Events
		a.health.Run,
		a.healthProxy().Run,
		a.refused.run,
		a.reportFallback,
	}
	if a.cfg.Local {
		parts = append(parts, a.watchForward)
	}

	if a.shadow != nil {
		parts = append(parts, a.shadow.Run)
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, run := range parts {
		group.Go(func() error { return run(ctx) })
	}

	return group.Wait()
}

// serves reports whether Services are served completely.
func (a *agent) serves() bool { return a.gateway.View().Missing() == "" && a.cluster.Missing() == "" }

// healthProxy returns the server of kube-proxy's health check.
func (a *agent) healthProxy() healthcheck.Proxy {
	return healthcheck.Proxy{
		Addr:    a.cfg.HealthAddr,
		Healthy: a.serves,
		Leaving: func() bool { return a.cluster.Leaving() || a.cluster.Drained() },
		Log:     a.log,
	}
}

// sharedNextHops returns the next hops that the gateway router and the host have in common. They
// have none without a gateway, in local gateway mode and in layout dedicated.
func (a *agent) sharedNextHops() neighbour.NextHops {
	next := neighbour.NextHops{Device: a.cfg.HostDevice()}

	n, known := a.gateway.View().Node()
	if !known || next.Device == "" || a.cfg.NoGateway || a.cfg.Local {
		return next
	}

	next.Hops = slices.Clone(n.NextHops)
	next.StandIns = n.StandIns()
	next.MAC, next.VLAN = n.Uplink.MAC, a.cfg.VLAN

	for _, r := range n.Routes { // IPv6 next hops of IPv4 routes are among the stand-ins
		if r.Via.IsValid() && r.Via.Is4() == r.Prefix.Addr().Is4() && !slices.Contains(next.Hops, r.Via) {
			next.Hops = append(next.Hops, r.Via)
		}
	}

	for _, p := range n.Addresses {
		next.Addrs = append(next.Addrs, p.Addr())
	}

	return next
}
