package main

import (
	"context"
	"flag"
	"log/slog"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
)

// controllerFlags are the settings that only the controller has. Settings that the agent has, too,
// are clusterFlags.
type controllerFlags struct {
	// Leader election.
	identity, leaseNamespace string
	leaderElect              bool
	lease                    time.Duration

	annotatesAsFirst bool     // also write the pod annotation of ovn-kubernetes' first releases
	allocate         string   // allocateAlways or allocateJoined
	removeChassis    bool     // delete the chassis of deleted nodes
	join4, join6     prefixes // one network each
	aclLogRate       int      // messages per second and ACL
	openstack        openstackFlags
}

// Values of allocate-node-subnets: every Node gets a pod subnet, or only Nodes with an agent.
const allocateAlways, allocateJoined = "always", "joined"

func newControllerFlags() *controllerFlags {
	return &controllerFlags{
		leaseNamespace: "kube-system",
		leaderElect:    true,
		lease:          15 * time.Second,
		aclLogRate:     plan.DefaultACLLogRate,
		allocate:       allocateAlways,
		removeChassis:  true,
		join4:          prefixes{mustPrefix("100.64.0.0/16")},
		join6:          prefixes{mustPrefix("fd98::/64")},
		openstack:      newOpenstackFlags(),
	}
}

func (c *controllerFlags) settings() []*setting.Setting {
	list := []*setting.Setting{
		{
			Flag:    "identity",
			Section: "masterha",
			Key:     "identity",
			Value:   setting.Text(&c.identity),
			Usage:   "`name` of this replica in the leader election; default: host name and process ID",
		},
		{
			Flag:    "lease-namespace",
			Section: "masterha",
			Key:     "lease-namespace",
			Value:   setting.Text(&c.leaseNamespace),
			About:   []string{"leader election"},
			Usage:   "`namespace` of the Lease for the leader election",
		},
		{
			Flag:    "leader-elect",
			Section: "masterha",
			Key:     "leader-elect",
			Value:   setting.Switch(&c.leaderElect),
			Usage: "elect a leader among the controller's replicas. With false, the controller writes " +
				"without holding the Lease",
		},
		{
			Flag:    "ha-election-lease-duration",
			Section: "masterha",
			Key:     "election-lease-duration",
			Value:   setting.Seconds(&c.lease),
			Usage:   "`seconds` after which another replica replaces a leader that has not renewed the Lease",
		},
		{
			Flag:    "pod-annotation-ovn",
			Section: "kubernetes",
			Key:     "pod-annotation-ovn",
			Value:   setting.Switch(&c.annotatesAsFirst),
			Usage: "also write the pod annotation ovn of ovn-kubernetes' first releases, with ip_address, " +
				"mac_address and gateway_ip",
		},
		{
			Flag:    "allocate-node-subnets",
			Section: "default",
			Key:     "allocate-node-subnets",
			Value:   setting.Choice(&c.allocate, allocateAlways, allocateJoined),
			Usage: "`nodes` that get a pod subnet: every Node (always), or only Nodes with an agent " +
				"(joined). With joined, the setup of a node can choose its subnet first " +
				"(docs/first-generation.md)",
		},
		{
			Flag:    "remove-chassis",
			Section: "ovnsouth",
			Key:     "remove-chassis",
			Value:   setting.Switch(&c.removeChassis),
			Usage: "delete the chassis of deleted nodes from the Southbound database. With false, the " +
				"controller waits until another program has deleted the chassis. In the chart, this is " +
				"the container chassis, because the chart's Southbound database accepts writes only at " +
				"its unix socket",
		},
		{
			Flag:    "acl-logging-rate-limit",
			Section: "logging",
			Key:     "acl-logging-rate-limit",
			Value:   setting.Number(&c.aclLogRate, 0, 1<<20),
			Usage: "maximum `messages` per second for each ACL that logs policy decisions. ACLs log in " +
				"namespaces with the annotation k8s.ovn.org/acl-logging",
		},
		{
			Flag:    "gateway-v4-join-subnet",
			Section: "gateway",
			Key:     "v4-join-subnet",
			Value:   oneNetwork{&c.join4, true},
			About:   []string{"join subnet"},
			Usage:   "IPv4 `network` between the cluster router and the gateway routers",
		},
		{
			Flag:    "gateway-v6-join-subnet",
			Section: "gateway",
			Key:     "v6-join-subnet",
			Value:   oneNetwork{&c.join6, false},
			About:   []string{"join subnet"},
			Usage:   "IPv6 `network` between the cluster router and the gateway routers",
		},
	}

	list = append(list, c.openstack.settings()...)
	for _, s := range list {
		s.Role = roleController
	}

	return list
}

// config returns the configuration of the controller of overlay mode.
func (c *controllerFlags) config(cluster *clusterFlags) (controller.Config, error) {
	rest, err := cluster.api.restConfig()
	if err != nil {
		return controller.Config{}, err
	}

	config := controller.Config{
		RestConfig:      rest,
		NBAddress:       cluster.nbAddress,
		SBAddress:       cluster.sbAddress,
		NBTLS:           cluster.nbTLS,
		SBTLS:           cluster.sbTLS,
		Databases:       cluster.databases(),
		ServiceCIDRs:    cluster.serviceCIDRs,
		ExternalIPs:     cluster.externalIPs,
		TrustSlices:     cluster.trustSlices,
		PodTunnels:      cluster.podTunnels,
		Hosts:           annotation.Trust{Networks: cluster.hostNetworks},
		ChassisOfNode:   cluster.chassisName == chassisNode,
		Shares:          cluster.shares,
		JoinSubnets:     append(append(prefixes{}, c.join4...), c.join6...),
		MTU:             cluster.mtu,
		Identity:        c.identity,
		LeaseNamespace:  c.leaseNamespace,
		LeaderElect:     c.leaderElect,
		Lease:           c.lease,
		MetricsAddr:     cluster.metricsAddress,
		MetricsTLS:      cluster.metricsTLS,
		BFD:             cluster.bfd,
		ACLLogRate:      c.aclLogRate,
		FirstAnnotation: c.annotatesAsFirst,
		WaitForAgent:    c.allocate == allocateJoined,
		ChassisRemover:  !c.removeChassis,
		SNATPorts:       cluster.snatPorts,
	}

	for _, s := range cluster.subnets {
		config.ClusterSubnets = append(config.ClusterSubnets,
			controller.ClusterSubnet{Prefix: s.prefix, HostLen: s.hostLen})
	}

	return config, config.Validate()
}

// runFunc runs a controller or an agent until its context ends. It calls begun once, when the
// controller or agent starts to work. After that, missing returns at any time what the controller
// or agent still waits for, and "" once it is ready.
type runFunc func(ctx context.Context, begun func(missing func() string)) error

// newController returns the controller of the configured mode. isAlone reports whether it is alone
// in its process. Only then may an overlay controller set the process's GOMAXPROCS
// (controller.Pace).
func (s *settings) newController(cluster *clusterFlags, isAlone bool, log *slog.Logger) (runFunc, error) {
	if cluster.mode == modeUnderlay {
		config, err := s.controller.underlayConfig(cluster)
		if err != nil {
			return nil, s.located(err)
		}

		return func(ctx context.Context, begun func(missing func() string)) error {
			config.Begun = begun
			return s.located(underlay.Run(ctx, config, log))
		}, nil
	}

	config, err := s.controller.config(cluster)
	if err != nil {
		return nil, s.located(err)
	}

	if isAlone {
		config.Busy = controller.Pace()
	}

	return func(ctx context.Context, begun func(missing func() string)) error {
		config.Begun = begun
		return controller.Run(ctx, config, log)
	}, nil
}

// runController runs the controller of the command 'ovnkube controller' or ovn-k8s-watcher.
func runController(ctx context.Context, env *environment, s *settings) error {
	log, err := s.load(ctx, env)
	if err != nil {
		return err
	}

	const isAlone = true

	run, err := s.newController(s.cluster, isAlone, log)
	if err != nil {
		return err
	}

	return s.inDaemon(ctx, log, func(ctx context.Context, p *daemon.Process) error {
		return run(ctx, func(missing func() string) { p.Follow("", missing) })
	})
}

func controllerCommand(f *flag.FlagSet) action {
	s := newSettings(controllerMetrics)
	s.declare(f, roleController)
	s.daemon.Declare(f, "ovnkube-controller")

	return func(ctx context.Context, _ []string, env *environment) error {
		return runController(ctx, env, s)
	}
}
