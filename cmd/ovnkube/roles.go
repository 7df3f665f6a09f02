package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// controllerFlags are the controller's own.
type controllerFlags struct {
	identity, leaseNamespace string
	leaderElect              bool
	joinSubnets              prefixes
	aclLogRate               int
}

func declareController(f *flag.FlagSet) *controllerFlags {
	c := &controllerFlags{joinSubnets: prefixes{mustPrefix("100.64.0.0/16"), mustPrefix("fd98::/64")}}
	f.StringVar(&c.identity, "identity", "", "`name` of this replica in the election; default: the host's name and the process id")
	f.StringVar(&c.leaseNamespace, "lease-namespace", "kube-system", "`namespace` of the election's Lease")
	f.BoolVar(&c.leaderElect, "leader-elect", true, "write only while holding the Lease")
	f.IntVar(&c.aclLogRate, "acl-logging-rate-limit", plan.DefaultACLLogRate, "most `messages` a second and ACL, where a namespace's annotation k8s.ovn.org/acl-logging has policies' decisions logged")
	f.Var(&c.joinSubnets, "join-subnets", "`networks` between the cluster router and the gateway routers, one a family")
	return c
}

func (c *controllerFlags) config(cluster *clusterFlags) (controller.Config, error) {
	rest, err := cluster.restConfig()
	if err != nil {
		return controller.Config{}, err
	}
	config := controller.Config{
		RestConfig: rest, NBAddress: cluster.nbAddress, SBAddress: cluster.sbAddress,
		NBTLS: cluster.nbTLS, SBTLS: cluster.sbTLS,
		ServiceCIDRs: cluster.serviceCIDRs, JoinSubnets: c.joinSubnets, MTU: cluster.mtu,
		Identity: c.identity, LeaseNamespace: c.leaseNamespace, LeaderElect: c.leaderElect,
		MetricsAddr: cluster.metricsAddress, BFD: cluster.bfd, ACLLogRate: c.aclLogRate,
	}
	config.SNATPorts.First, config.SNATPorts.Last = cluster.snatPorts.first, cluster.snatPorts.last
	for _, s := range cluster.subnets {
		config.ClusterSubnets = append(config.ClusterSubnets, controller.ClusterSubnet{Prefix: s.prefix, HostLen: s.hostLen})
	}
	return config, config.Validate()
}

func controllerCommand(f *flag.FlagSet) action {
	cluster, own := declareCluster(f, "127.0.0.1:9409"), declareController(f)
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		config, err := own.config(cluster)
		if err != nil {
			return err
		}
		log, err := cluster.logger(env.stderr)
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
	encapIP                               addresses
	nodePorts                             bool
	pinDir, cniSocket, cniConfDir, runDir string
	cgroupPath                            string
	healthAddress                         string
}

func declareAgent(f *flag.FlagSet) *agentFlags {
	a := &agentFlags{}
	f.StringVar(&a.ovsdb, "ovsdb", "unix:/run/openvswitch/db.sock", "`address` of the node's Open vSwitch database")
	f.StringVar(&a.ovsRunDir, "ovs-rundir", "/run/openvswitch", "`directory` of the bridges' management sockets")
	f.StringVar(&a.ovnRunDir, "ovn-rundir", "/run/ovn", "`directory` of ovn-controller's pid file and control socket")
	f.StringVar(&a.datapath, "datapath", "", "Open vSwitch datapath `type`, system or netdev; default: system where the kernel has it")
	f.StringVar(&a.uplink, "gateway-interface", "", "the uplink, a network `interface`; default: the one of the default route. In layout bridged also the OVS bridge that has it")
	a.gateway.declare(f)
	f.Var(&a.nextHops, "gateway-nexthop", "next `hops` of the gateway router, by commas; default: those of the default routes")
	f.Var(&a.encapIP, "encap-ip", "`address` of the Geneve tunnels; default: the node's. The userspace datapath needs one of its own")
	f.BoolVar(&a.nodePorts, "nodeport", true, "serve NodePorts on the node's addresses")
	f.StringVar(&a.pinDir, "pin-dir", "/sys/fs/bpf/ovn-ebpf", "`directory` of the pinned eBPF programs and maps")
	f.StringVar(&a.cniSocket, "cni-socket", "/run/ovn-ebpf/cni.sock", "unix socket (`path`) that the CNI plugin calls")
	f.StringVar(&a.cniConfDir, "cni-conf-dir", "/etc/cni/net.d", "`directory` for the CNI configuration, written when the node is ready; empty: do not write")
	f.StringVar(&a.cgroupPath, "cgroup-path", "", "`directory` where cgroup2 is mounted; default: the mount that is found")
	f.StringVar(&a.healthAddress, "healthz-bind-address", ":10256", "`address` for the node's health check that load balancers ask, kube-proxy's /healthz and /livez; empty: do not serve")
	f.StringVar(&a.runDir, "run-dir", "/run/ovn-ebpf", "`directory` for what the agent keeps until the next boot")
	return a
}

func (a *agentFlags) config(cluster *clusterFlags) (agent.Config, error) {
	rest, err := cluster.restConfig()
	if err != nil {
		return agent.Config{}, err
	}
	config := agent.Config{
		NodeName: a.nodeName, RestConfig: rest, OVSDB: a.ovsdb, OVSRunDir: a.ovsRunDir, OVNRunDir: a.ovnRunDir, SBAddress: cluster.sbAddress,
		Uplink: a.uplink, NextHops: a.nextHops, ClusterSubnets: cluster.subnets.prefixes(), ServiceCIDRs: cluster.serviceCIDRs,
		SNATPorts: bpf.PortRange{First: cluster.snatPorts.first, Last: cluster.snatPorts.last}, NodePorts: a.nodePorts, MTU: cluster.mtu,
		PinDir: a.pinDir, CNISocket: a.cniSocket, CNIConfDir: a.cniConfDir, RunDir: a.runDir,
		MetricsAddr: cluster.metricsAddress, HealthAddr: a.healthAddress, Datapath: a.datapath, Gateway: a.gateway.config(cluster.bfd), CgroupPath: a.cgroupPath,
		Watchdog: []string{"/proc/self/exe", watchdogCommand, "--ovsdb", a.ovsdb, "--datapath", a.datapath, "--pin-dir", a.pinDir},
	}
	switch len(a.encapIP) {
	case 0:
	case 1:
		config.EncapIP = a.encapIP[0]
	default:
		return agent.Config{}, errors.New("--encap-ip takes one address")
	}
	return config, config.Validate()
}

func agentCommand(f *flag.FlagSet) action {
	cluster, own := declareCluster(f, "127.0.0.1:9410"), declareAgent(f)
	f.StringVar(&own.nodeName, "node-name", "", "`name` of this node's Node object; default: the host's name")
	cleanup := f.Bool("cleanup", false, "take everything of ours off this node, then exit")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		return runAgent(ctx, env, cluster, own, *cleanup)
	}
}

func runAgent(ctx context.Context, env *environment, cluster *clusterFlags, own *agentFlags, cleanup bool) error {
	if own.nodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		own.nodeName = name
	}
	config, err := own.config(cluster)
	if err != nil {
		return err
	}
	log, err := cluster.logger(env.stderr)
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
	cluster, master, node := declareCluster(f, ""), declareController(f), declareAgent(f)
	initMaster := f.String("init-master", "", "run the controller; `name` is this replica's")
	f.StringVar(&node.nodeName, "init-node", "", "run the node agent for the Node of this `name`")
	cleanupNode := f.String("cleanup-node", "", "take everything of ours off the node of this `name`, then exit")
	gateways := f.Bool("init-gateways", true, "false is the same as --gateway-mode=none")
	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}
		if !*gateways {
			node.gateway.mode = gatewayModeNone
		}
		if *cleanupNode != "" {
			node.nodeName = *cleanupNode
			return runAgent(ctx, env, cluster, node, true)
		}
		if *initMaster == "" && node.nodeName == "" {
			return errors.New("nothing to run: give a command, -init-master or -init-node; see 'ovnkube --help'")
		}
		master.identity = *initMaster
		return runRoles(ctx, env, cluster, master, node)
	}
}

// runRoles runs the roles asked for until one of them ends.
func runRoles(ctx context.Context, env *environment, cluster *clusterFlags, master *controllerFlags, node *agentFlags) error {
	log, err := cluster.logger(env.stderr)
	if err != nil {
		return err
	}
	address := func(dflt string) *clusterFlags {
		own := *cluster
		if own.metricsAddress == "" {
			own.metricsAddress = dflt
		}
		return &own
	}
	group, ctx := errgroup.WithContext(ctx)
	if master.identity != "" {
		config, err := master.config(address("127.0.0.1:9409"))
		if err != nil {
			return err
		}
		group.Go(func() error { return controller.Run(ctx, config, log.With(slog.String("role", "controller"))) })
	}
	if node.nodeName != "" {
		config, err := node.config(address("127.0.0.1:9410"))
		if err != nil {
			return err
		}
		group.Go(func() error { return agent.Run(ctx, config, log.With(slog.String("role", "agent"))) })
	}
	return group.Wait()
}
