package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// controllerFlags are the controller's own.
type controllerFlags struct {
	identity, leaseNamespace string
	leaderElect              bool
	lease                    time.Duration
	join4, join6             prefixes
	aclLogRate               int
}

func newControllerFlags() *controllerFlags {
	return &controllerFlags{
		leaseNamespace: "kube-system", leaderElect: true, lease: 15 * time.Second, aclLogRate: plan.DefaultACLLogRate,
		join4: prefixes{mustPrefix("100.64.0.0/16")}, join6: prefixes{mustPrefix("fd98::/64")},
	}
}

func (c *controllerFlags) settings() []*setting.Setting {
	list := []*setting.Setting{
		{Flag: "identity", Section: "masterha", Key: "identity", Value: setting.Text(&c.identity), Usage: "`name` of this replica in the election; default: the host's name and the process id"},
		{Flag: "lease-namespace", Section: "masterha", Key: "lease-namespace", Value: setting.Text(&c.leaseNamespace), About: []string{"leader election"}, Usage: "`namespace` of the election's Lease"},
		{Flag: "leader-elect", Section: "masterha", Key: "leader-elect", Value: setting.Switch(&c.leaderElect), Usage: "write only while holding the Lease"},
		{Flag: "ha-election-lease-duration", Section: "masterha", Key: "election-lease-duration", Value: setting.Seconds(&c.lease), Usage: "`seconds` for which a silent leader keeps the others waiting"},
		{Flag: "acl-logging-rate-limit", Section: "logging", Key: "acl-logging-rate-limit", Value: setting.Number(&c.aclLogRate, 0, 1<<20), Usage: "most `messages` a second and ACL, where a namespace's annotation k8s.ovn.org/acl-logging has policies' decisions logged"},
		{Flag: "gateway-v4-join-subnet", Section: "gateway", Key: "v4-join-subnet", Value: family{&c.join4, true}, About: []string{"join subnet"}, Usage: "IPv4 `network` between the cluster router and the gateway routers"},
		{Flag: "gateway-v6-join-subnet", Section: "gateway", Key: "v6-join-subnet", Value: family{&c.join6, false}, About: []string{"join subnet"}, Usage: "IPv6 `network` between the cluster router and the gateway routers"},
	}
	for _, s := range list {
		s.Role = roleController
	}
	return list
}

func (c *controllerFlags) config(cluster *clusterFlags) (controller.Config, error) {
	rest, err := cluster.api.restConfig()
	if err != nil {
		return controller.Config{}, err
	}
	config := controller.Config{
		RestConfig: rest, NBAddress: cluster.nbAddress, SBAddress: cluster.sbAddress,
		NBTLS: cluster.nbTLS, SBTLS: cluster.sbTLS,
		ServiceCIDRs: cluster.serviceCIDRs, JoinSubnets: append(append(prefixes{}, c.join4...), c.join6...), MTU: cluster.mtu,
		Identity: c.identity, LeaseNamespace: c.leaseNamespace, LeaderElect: c.leaderElect, Lease: c.lease,
		MetricsAddr: cluster.metricsAddress, BFD: cluster.bfd, ACLLogRate: c.aclLogRate,
	}
	config.SNATPorts.First, config.SNATPorts.Last = cluster.snatPorts.first, cluster.snatPorts.last
	for _, s := range cluster.subnets {
		config.ClusterSubnets = append(config.ClusterSubnets, controller.ClusterSubnet{Prefix: s.prefix, HostLen: s.hostLen})
	}
	return config, config.Validate()
}

func controllerCommand(f *flag.FlagSet) action {
	s := newSettings(controllerMetrics)
	s.declare(f, roleController)
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		log, err := s.load(ctx, env)
		if err != nil {
			return err
		}
		config, err := s.controller.config(s.cluster)
		if err != nil {
			return err
		}
		return controller.Run(ctx, config, log)
	}
}

// agentFlags are the node agent's own.
type agentFlags struct {
	nodeName                              string
	ovsdb, ovsRunDir, ovnRunDir, datapath string
	uplink                                string
	gateway                               gatewayFlags
	nextHops                              addresses
	encapIP                               oneAddress
	encapType, encapPort                  string // there is one of each
	nodePorts                             bool
	pinDir, cniSocket, cniConfDir, runDir string
	cgroupPath                            string
	healthAddress                         string
}

func newAgentFlags() *agentFlags {
	return &agentFlags{
		ovsdb: "unix:/run/openvswitch/db.sock", ovsRunDir: "/run/openvswitch", ovnRunDir: "/run/ovn", gateway: newGatewayFlags(), nodePorts: true,
		pinDir: "/sys/fs/bpf/ovn-ebpf", cniSocket: "/run/ovn-ebpf/cni.sock", cniConfDir: "/etc/cni/net.d", runDir: "/run/ovn-ebpf",
		healthAddress: ":10256", encapType: "geneve", encapPort: "6081",
	}
}

func (a *agentFlags) settings() []*setting.Setting {
	list := []*setting.Setting{
		{Flag: "ovsdb", Section: "ovspaths", Key: "ovsdb", Value: setting.Text(&a.ovsdb), About: []string{"OVSDB address"}, Usage: "`address` of the node's Open vSwitch database"},
		{Flag: "ovs-rundir", Section: "ovspaths", Key: "run-dir", Value: setting.Text(&a.ovsRunDir, absolute), Usage: "`directory` of the bridges' management sockets"},
		{Flag: "ovn-rundir", Section: "ovspaths", Key: "ovn-run-dir", Value: setting.Text(&a.ovnRunDir, absolute), Usage: "`directory` of ovn-controller's pid file and control socket"},
		{Flag: "datapath", Section: "default", Key: "datapath", Value: setting.Text(&a.datapath, setting.OneOf("", "system", "netdev")), About: []string{"datapath"}, Usage: "Open vSwitch datapath `type`, system or netdev; default: system where the kernel has it"},
		{Flag: "gateway-interface", Section: "gateway", Key: "interface", Value: setting.Text(&a.uplink), About: []string{"gateway interface", "uplink"}, Usage: "the uplink, a network `interface`; default: the one of the default route. In layout bridged also the OVS bridge that has it"},
		{Flag: "gateway-nexthop", Section: "gateway", Key: "next-hop", Value: &a.nextHops, About: []string{"next hop"}, Usage: "next `hops` of the gateway router, by commas; default: those of the default routes"},
		{Flag: "encap-ip", Section: "default", Key: "encap-ip", Value: &a.encapIP, About: []string{"encap address"}, Usage: "`address` of the Geneve tunnels; default: the node's. The userspace datapath needs one of its own"},
		{Flag: "encap-port", Section: "default", Key: "encap-port", Value: setting.Text(&a.encapPort, setting.OneOf("6081")), Usage: "UDP `port` of the tunnels: OVN's, 6081, and no other"},
		{Flag: "encap-type", Section: "default", Key: "encap-type", Value: setting.Text(&a.encapType, setting.OneOf("geneve")), Usage: "`protocol` of the tunnels: geneve, and no other"},
		{Flag: "nodeport", Section: "gateway", Key: "nodeport", Value: setting.Switch(&a.nodePorts), Usage: "serve NodePorts on the node's addresses"},
		{Flag: "pin-dir", Section: "default", Key: "pin-dir", Value: setting.Text(&a.pinDir), About: []string{"pin directory"}, Usage: "`directory` of the pinned eBPF programs and maps"},
		{Flag: "cni-socket", Section: "cni", Key: "socket", Value: setting.Text(&a.cniSocket, absolute), Usage: "unix socket (`path`) that the CNI plugin calls"},
		{Flag: "cni-conf-dir", Section: "cni", Key: "conf-dir", Value: setting.Text(&a.cniConfDir), Usage: "`directory` for the CNI configuration, written when the node is ready; empty: do not write"},
		{Flag: "cgroup-path", Section: "default", Key: "cgroup-path", Value: setting.Text(&a.cgroupPath), Usage: "`directory` where cgroup2 is mounted; default: the mount that is found"},
		{Flag: "healthz-bind-address", Section: "kubernetes", Key: "healthz-bind-address", Value: setting.Text(&a.healthAddress, hostPort), Usage: "`address` for the node's health check that load balancers ask, kube-proxy's /healthz and /livez; empty: do not serve"},
		{Flag: "run-dir", Section: "default", Key: "run-dir", Value: setting.Text(&a.runDir, absolute), Usage: "`directory` for what the agent keeps until the next boot"},
	}
	list = append(list, a.gateway.settings()...)
	for _, s := range list {
		s.Role = roleAgent
	}
	return list
}

func (a *agentFlags) config(cluster *clusterFlags) (agent.Config, error) {
	rest, err := cluster.api.restConfig()
	if err != nil {
		return agent.Config{}, err
	}
	config := agent.Config{
		NodeName: a.nodeName, RestConfig: rest, OVSDB: a.ovsdb, OVSRunDir: a.ovsRunDir, OVNRunDir: a.ovnRunDir, SBAddress: cluster.sbAddress,
		Uplink: a.uplink, NextHops: a.nextHops, ClusterSubnets: cluster.subnets.prefixes(), ServiceCIDRs: cluster.serviceCIDRs,
		SNATPorts: bpf.PortRange{First: cluster.snatPorts.first, Last: cluster.snatPorts.last}, NodePorts: a.nodePorts, MTU: cluster.mtu,
		PinDir: a.pinDir, CNISocket: a.cniSocket, CNIConfDir: a.cniConfDir, RunDir: a.runDir,
		MetricsAddr: cluster.metricsAddress, HealthAddr: a.healthAddress, Datapath: a.datapath, EncapIP: a.encapIP.addr, Gateway: a.gateway.config(cluster.bfd), CgroupPath: a.cgroupPath,
		Watchdog: a.watchdog(),
	}
	return config, config.Validate()
}

func agentCommand(f *flag.FlagSet) action {
	s := newSettings(agentMetrics)
	s.declare(f, roleAgent)
	f.StringVar(&s.agent.nodeName, "node-name", "", "`name` of this node's Node object; default: the host's name")
	cleanup := f.Bool("cleanup", false, "take everything of ours off this node, then exit")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return runAgent(ctx, env, s, *cleanup)
	}
}

func runAgent(ctx context.Context, env *environment, s *settings, cleanup bool) error {
	if s.agent.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		s.agent.nodeName = name
	}
	log, err := s.load(ctx, env)
	if err != nil {
		return err
	}
	config, err := s.agent.config(s.cluster)
	if err != nil {
		return err
	}
	if cleanup {
		return agent.Cleanup(ctx, config, log)
	}
	return agent.Run(ctx, config, log)
}

// classicCommand is the second generation's command line: the roles are flags,
// and both may run in one process.
func classicCommand(f *flag.FlagSet) action {
	s := newSettings("")
	s.declare(f, allRoles)
	initMaster := f.String("init-master", "", "run the controller; `name` is this replica's")
	f.StringVar(&s.agent.nodeName, "init-node", "", "run the node agent for the Node of this `name`")
	cleanupNode := f.String("cleanup-node", "", "take everything of ours off the node of this `name`, then exit")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if *cleanupNode != "" {
			s.agent.nodeName = *cleanupNode
			return runAgent(ctx, env, s, true)
		}
		if *initMaster == "" && s.agent.nodeName == "" {
			return errors.New("nothing to run: give a command, -init-master or -init-node; see 'ovnkube --help'")
		}
		return runRoles(ctx, env, s, *initMaster)
	}
}

// Where the roles serve their metrics when they are not told.
const (
	controllerMetrics = "127.0.0.1:9409"
	agentMetrics      = "127.0.0.1:9410"
)

// runRoles runs the roles asked for until one of them ends.
func runRoles(ctx context.Context, env *environment, s *settings, initMaster string) error {
	log, err := s.load(ctx, env)
	if err != nil {
		return err
	}
	address := func(dflt string) *clusterFlags {
		own := *s.cluster
		if own.metricsAddress == "" {
			own.metricsAddress = dflt
		}
		return &own
	}
	group, ctx := errgroup.WithContext(ctx)
	if initMaster != "" {
		s.controller.identity = initMaster
		config, err := s.controller.config(address(controllerMetrics))
		if err != nil {
			return err
		}
		group.Go(func() error { return controller.Run(ctx, config, log.With(slog.String("role", "controller"))) })
	}
	if s.agent.nodeName != "" {
		config, err := s.agent.config(address(agentMetrics))
		if err != nil {
			return err
		}
		group.Go(func() error { return agent.Run(ctx, config, log.With(slog.String("role", "agent"))) })
	}
	return group.Wait()
}
