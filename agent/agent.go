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

// agent holds the parts of a running agent and their shared state.
type agent struct {
	cfg      Config // with the settings completed by Run
	detected detected
	log      *slog.Logger
	ready    *readiness.Readiness
	page     *page.Page
	nodeWake loop.Signal // triggered when the Node, or its desired annotations, have changed
	ovsWake  loop.Signal // triggered when the settings in OVS, or their inputs, have changed
	podsWake loop.Signal // triggered when the controller's annotation of a pod has changed

	ovs         *ovs.Client
	chassis     atomic.Pointer[chassis] // as written to OVS last
	cluster     *cluster.Cluster
	servers     *controlplane.Finder
	gateway     *gateway.Gateway
	shortcuts   *gateway.ShortcutManager
	affinity    *ovs.AffinityFlows
	management  *management.Port
	responder   *responder
	neighbours  *neighbour.Resolver
	environment *environment.Watch
	shadow      *shadow.Shadow // nil: comparison is off
	health      *healthcheck.Server
	refused     *refusals
	mtu         atomic.Int64 // of pods; 0 while unknown
	nodeFault   atomic.Pointer[string]

	// The node loop owns these.
	notLocal   bool                                    // leftovers of local gateway mode are removed
	redirected map[verdict.ServiceKey]service.Redirect // redirects of local gateway mode

	forwardWake  loop.Signal            // triggers a probe through the hook forward
	forwardFault atomic.Pointer[string] // result of the probes, "" without a fault; nil before the first

	hostSent *metrics.HostSent
}

// Run runs the node agent. It returns nil when ctx ends. It returns an error for faults that
// waiting cannot repair: an invalid cfg, a kernel without a required feature, a missing uplink. On
// return, the node's network keeps working.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("check configuration: %w", err)
	}

	if err := status.CheckMode(cfg.RunDir, false); err != nil {
		return err
	}

	noEBPF := bpf.Supported()
	if errors.Is(noEBPF, bpf.ErrPrivilege) {
		return errors.Join(noEBPF, link.CheckEnterNetns())
	}

	if err := link.CheckEnterNetns(); err != nil {
		return err
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

	found := detected{uplink: cfg.Uplink == "", datapath: cfg.Datapath == ""}
	cfg.Settings = fallBack(settings, noEBPF)
	a := &agent{
		cfg:         cfg,
		detected:    found,
		log:         log,
		ready:       readiness.New(log),
		nodeWake:    loop.NewSignal(),
		ovsWake:     loop.NewSignal(),
		podsWake:    loop.NewSignal(),
		forwardWake: loop.NewSignal(),
	}

	a.page = page.New(a.ready.Missing)
	if err := a.follow(); err != nil {
		return err
	}

	registry := prometheus.NewRegistry()

	listener, err := cfg.listen(log)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
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

	if s := a.cfg.Settings; !s.NoGateway && s.Layout == verdict.Direct {
		a.hostSent = &metrics.HostSent{
			Device: func() (packets, bytes uint64, err error) { return link.Sent(a.cfg.Uplink) },
		}
	}

	durations := cniserver.NewDurations()
	registry.MustRegister(metrics.New(a.source()), durations)
	a.page.Set(a.pageSource())

	server, keeper, steal, err := a.cniServer(durations)
	if err != nil {
		return err
	}

	if steal != nil {
		defer steal.Close()
	}

	a.addParts()
	a.ready.Add(server.Missing)
	a.ready.Complete()

	return a.runParts(ctx, server, keeper)
}

// layoutName returns the layout as shown in metrics: "none" for a node without a gateway.
func layoutName(s gateway.Settings) string {
	if s.NoGateway {
		return "none"
	}

	return s.Layout.String()
}

// openOVS waits for ovsdb-server and writes the settings first.
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

	// Resolving is the only step here whose errors are permanent.
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

// follow builds what reads the cluster and what writes Events. Nothing of it runs yet.
func (a *agent) follow() error {
	var err error

	api := a.cfg.API(a.log)

	a.cluster, err = cluster.New(api, a.cfg.NodeName, cluster.Handlers{
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
			Peers: a.cluster.Peers, Addresses: a.cluster.Addresses, ControlPlane: a.controlPlane,
			Refused: a.refused.set,
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
	a.responder, a.shadow = a.newResponder(), a.newShadow()
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
}

// controlPlane returns the servers that the settings and the slices of default/kubernetes name.
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

// addParts registers the parts for the readiness check.
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
	a.ready.Add(a.unannotated)
	a.ready.Add(a.chassisTaken)
	a.ready.Add(a.management.Missing)
	a.environment.Add(a.addressGone, a.addressDiffers, a.routesRemoved, a.nextHopDiffers, a.chassisTakenFault,
		a.chassisDiffers, a.networksOverlap, a.defaultRouteElsewhere, a.noNextHop(true), a.noNextHop(false),
		a.kernelDatapathUnused, a.kernelDatapathMissing, a.otherNetworkFirst, a.certificateInvalid,
		a.affinityLosesPackets, a.forwardDropped, clusterNotFollowed(a.cluster.Behind))
}

func (a *agent) runParts(ctx context.Context, server *cniserver.Server, keeper *podnet.Keeper) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cluster.Run(ctx) })
	group.Go(func() error { return a.servers.Run(ctx) })
	group.Go(func() error { return a.followAddresses(ctx) })
	group.Go(func() error { return a.gateway.Run(ctx) })
	group.Go(func() error { return a.shortcuts.Run(ctx) })
	group.Go(func() error { return a.affinity.Run(ctx) })
	group.Go(func() error { return a.management.Run(ctx) })
	group.Go(func() error { return a.responder.Run(ctx) })
	group.Go(func() error { return a.neighbours.Run(ctx) })
	group.Go(func() error { return a.health.Run(ctx) })
	group.Go(func() error { return a.refused.run(ctx) })
	group.Go(func() error {
		leaving := func() bool { return a.cluster.Leaving() || a.cluster.Drained() }
		proxy := healthcheck.Proxy{
			Addr:    a.cfg.HealthAddr,
			Healthy: a.serves,
			Leaving: leaving,
			Log:     a.log,
		}

		return proxy.Run(ctx)
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "node annotations",
			Wake:   a.nodeWake,
			Apply:  a.syncNode,
			Resync: time.Minute,
			Log:    a.log,
		})
	})
	group.Go(func() error { return a.watchController(ctx) })
	group.Go(func() error { return a.reportFallback(ctx) })
	group.Go(func() error { return a.keepSettings(ctx) })
	group.Go(func() error { return server.Run(ctx, a.ready.Changed.Trigger) })
	group.Go(func() error { return keeper.Run(ctx) })

	if a.cfg.Local {
		group.Go(func() error { return a.watchForward(ctx) })
	}

	if a.shadow != nil {
		group.Go(func() error { return a.shadow.Run(ctx) })
	}

	group.Go(func() error { return a.announce(ctx) })

	return group.Wait()
}

// sharedNextHops returns the next hops that the gateway router and the host have in common.
func (a *agent) sharedNextHops() neighbour.NextHops {
	next := neighbour.NextHops{Device: a.cfg.HostDevice()}

	n, known := a.gateway.View().Node()
	if !known || next.Device == "" || a.cfg.NoGateway || a.cfg.Local {
		return next
	}

	next.Hops, next.MAC, next.VLAN = slices.Clone(n.NextHops), n.Uplink.MAC, a.cfg.VLAN
	next.StandIns = n.StandIns()

	for _, r := range n.Routes {
		if r.Via.IsValid() && r.Via.Is4() == r.Prefix.Addr().Is4() && !slices.Contains(next.Hops, r.Via) {
			next.Hops = append(next.Hops, r.Via)
		}
	}

	for _, p := range n.Addresses {
		next.Addrs = append(next.Addrs, p.Addr())
	}

	return next
}

// serves reports whether Services are served completely.
func (a *agent) serves() bool { return a.gateway.View().Missing() == "" && a.cluster.Missing() == "" }

// keepSettings rewrites the settings in OVS when they are changed by others, when the node's
// address changes, or when ovs-vswitchd reports the capabilities of its datapath. It follows a
// changed system-id.
func (a *agent) keepSettings(ctx context.Context) error {
	settings := func(table, _ string) bool { return table == "Open_vSwitch" || table == "Datapath" }

	defer a.ovs.Watch(settings, a.ovsWake)()

	return loop.Run(ctx, loop.Options{
		Name: "OVS settings", Wake: a.ovsWake, Resync: time.Minute, Log: a.log,
		Apply: func(ctx context.Context) error {
			err := a.syncOVS(ctx)
			if a.cfg.AvoidNullNAT && a.cfg.Datapath == ovs.DatapathNetdev {
				err = errors.Join(err, a.ovs.AvoidNullNAT(ctx, a.cfg.OVSRunDir))
			}

			return err
		},
	})
}
