package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	agentcluster "github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	agentenv "github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/authority"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// agentFlags are the settings that only the node agent has. Settings that the controller has, too,
// are clusterFlags.
type agentFlags struct {
	nodeName string // of the Node object; "": the host name

	// Open vSwitch and ovn-controller of this node.
	ovsdb, ovsRunDir, ovnRunDir string
	datapath                    string // system or netdev; "": system if the kernel supports it
	avoidsNullNAT               bool

	// The gateway.
	uplink          string // "": the interface of the default route
	gateway         gatewayFlags
	nextHops        addresses // empty: those of the default routes
	servesNodePorts bool
	nodePortRange   cluster.PortRange

	// The tunnels. Type and port have only one valid value each.
	encapIP              optionalAddress
	encapType, encapPort string

	// Paths and addresses of the agent.
	pinDir, runDir        string
	cniSocket, cniConfDir string
	isCNIExclusive        bool
	cgroupPath            string // "": detected
	healthAddress         string // "": no health check

	countedPods int // maximum number of pods with their own counters
	underlay    underlayFlags
}

func newAgentFlags() *agentFlags {
	return &agentFlags{
		ovsdb:           "unix:/run/openvswitch/db.sock",
		ovsRunDir:       "/run/openvswitch",
		ovnRunDir:       "/run/ovn",
		gateway:         newGatewayFlags(),
		servesNodePorts: true,
		pinDir:          "/sys/fs/bpf/ovn-ebpf",
		cniSocket:       "/run/ovn-ebpf/cni.sock",
		cniConfDir:      "/etc/cni/net.d",
		runDir:          "/run/ovn-ebpf",
		nodePortRange:   cluster.PortRange{First: 30000, Last: 32767},
		healthAddress:   ":10256",
		encapType:       "geneve",
		encapPort:       "6081",
		countedPods:     250,
		underlay:        newUnderlayFlags(),
	}
}

func (a *agentFlags) settings() []*setting.Setting {
	list := []*setting.Setting{
		{
			Flag:    "node-name",
			Section: "kubernetes",
			Key:     "node-name",
			Value:   setting.Text(&a.nodeName),
			Usage: "`name` of this node's Node object; default: the host name. The flag -init-node also " +
				"sets it",
		},
		{
			Flag:    "ovsdb",
			Section: "ovspaths",
			Key:     "ovsdb",
			Value:   setting.Text(&a.ovsdb),
			About:   []string{"OVSDB address"},
			Usage:   "`address` of the node's Open vSwitch database",
		},
		{
			Flag:    "ovs-rundir",
			Section: "ovspaths",
			Key:     "run-dir",
			Value:   setting.Text(&a.ovsRunDir, checkAbsolute),
			Usage:   "`directory` with the management sockets of Open vSwitch's bridges",
		},
		{
			Flag:    "ovn-rundir",
			Section: "ovspaths",
			Key:     "ovn-run-dir",
			Value:   setting.Text(&a.ovnRunDir, checkAbsolute),
			Usage:   "`directory` with ovn-controller's pid file and control socket",
		},
		{
			Flag:    "datapath",
			Section: "default",
			Key:     "datapath",
			Value:   setting.Choice(&a.datapath, "", "system", "netdev"),
			About:   []string{"datapath"},
			Usage: "`type` of the Open vSwitch datapath: system (in the kernel) or netdev (in userspace); " +
				"default: system if the kernel supports it, otherwise netdev",
		},
		{
			Flag:    "gateway-interface",
			Section: "gateway",
			Key:     "interface",
			Value:   setting.Text(&a.uplink),
			About:   []string{"gateway interface", "uplink"},
			Usage: "network `interface` of the uplink; default: the interface of the default route. In " +
				"layout bridged, the value may also be the uplink's Open vSwitch bridge",
		},
		{
			Flag:    "gateway-nexthop",
			Section: "gateway",
			Key:     "next-hop",
			Value:   &a.nextHops,
			About:   []string{"next hop"},
			Usage: "next `hops` of the gateway router, separated by commas; default: the next hops of " +
				"the default routes",
		},
		{
			Flag:    "encap-ip",
			Section: "default",
			Key:     "encap-ip",
			Value:   &a.encapIP,
			About:   []string{"encap address"},
			Usage: "`address` of the node for Geneve tunnels; default: the node's address. With datapath " +
				"netdev, layout direct needs a separate address, in a subnet in which the node has no other " +
				"address. The agent configures this address on the gateway bridge. Layout bridged does not " +
				"support the setting with datapath netdev",
		},
		{
			Flag:    "encap-port",
			Section: "default",
			Key:     "encap-port",
			Value:   setting.Choice(&a.encapPort, "6081"),
			Usage:   "UDP `port` of the Geneve tunnels (must be 6081)",
		},
		{
			Flag:    "encap-type",
			Section: "default",
			Key:     "encap-type",
			Value:   setting.Choice(&a.encapType, "geneve"),
			Usage:   "`protocol` of the tunnels (must be geneve)",
		},
		{
			Flag:    "nodeport",
			Section: "gateway",
			Key:     "nodeport",
			Value:   setting.Switch(&a.servesNodePorts),
			Usage:   "serve NodePorts on the node's addresses",
		},
		{
			Flag:    "service-node-port-range",
			Section: "gateway",
			Key:     "service-node-port-range",
			Value:   &a.nodePortRange,
			About:   []string{"NodePort range"},
			Usage: "`ports` FIRST-LAST of NodePorts, as in the API server's flag of this name. The host " +
				"does not choose these ports for its own connections",
		},
		{
			Flag:    "pin-dir",
			Section: "default",
			Key:     "pin-dir",
			Value:   setting.Text(&a.pinDir),
			About:   []string{"pin directory"},
			Usage:   "`directory` in which eBPF programs and maps are pinned",
		},
		{
			Flag:    "cni-socket",
			Section: "cni",
			Key:     "socket",
			Value:   setting.Text(&a.cniSocket, checkAbsolute),
			Usage:   "`path` of the unix socket for the CNI plugin",
		},
		{
			Flag:    "cni-conf-dir",
			Section: "cni",
			Key:     "conf-dir",
			Value:   setting.Text(&a.cniConfDir),
			Usage: "`directory` in which the agent writes the CNI configuration when the node is ready " +
				"(empty: none)",
		},
		{
			Flag:    "cni-exclusive",
			Section: "cni",
			Key:     "exclusive",
			Value:   setting.Switch(&a.isCNIExclusive),
			Usage: "rename the CNI configurations of other networks in --cni-conf-dir while the node is " +
				"ready. The container runtime then uses this network. The new names end in " +
				".ovn-ebpf-kept. The agent's flag --cleanup restores the old names",
		},
		{
			Flag:    "cgroup-path",
			Section: "default",
			Key:     "cgroup-path",
			Value:   setting.Text(&a.cgroupPath),
			Usage:   "`directory` where cgroup2 is mounted; default: detected",
		},
		{
			Flag:    "healthz-bind-address",
			Section: "kubernetes",
			Key:     "healthz-bind-address",
			Value:   setting.Text(&a.healthAddress, optional(checkHostPort)),
			Usage: "`address` of the node's health check for load balancers (empty: none). The health " +
				"check has the paths /healthz and /livez, as that of kube-proxy",
		},
		{
			Flag:    "counted-pods",
			Section: "metrics",
			Key:     "counted-pods",
			Value:   setting.Number(&a.countedPods, 0, 10000),
			Usage: "maximum number of `pods` per node that have packet, byte and drop counters of their " +
				"own (0: none)",
		},
		{
			Flag:    "avoid-null-nat",
			Section: "default",
			Key:     "avoid-null-nat",
			Value:   setting.Switch(&a.avoidsNullNAT),
			Usage: "keep OVN from installing NAT flows that translate nothing. On the userspace datapath " +
				"of Open vSwitch before 3.3, ovs-vswitchd may abort at such flows",
		},
		{
			Flag:    "run-dir",
			Section: "default",
			Key:     "run-dir",
			Value:   setting.Text(&a.runDir, checkAbsolute),
			Usage:   "`directory` of the agent's state, which is not needed after a reboot",
		},
	}
	list = append(list, a.gateway.settings()...)
	list = append(list, a.underlay.settings()...)

	for _, s := range list {
		s.Role = roleAgent
	}

	return list
}

// config returns the configuration of the agent of overlay mode. With an error, it is incomplete,
// but enough to report the error.
func (a *agentFlags) config(cluster *clusterFlags) (agent.Config, error) {
	rest, err := cluster.api.restConfig()
	if err != nil {
		return a.uncheckedConfig(cluster, nil), err
	}

	config := a.uncheckedConfig(cluster, rest)

	return config, config.Validate()
}

// uncheckedConfig returns the configuration without checking its values. rest may be nil.
func (a *agentFlags) uncheckedConfig(cluster *clusterFlags, rest *rest.Config) agent.Config {
	return agent.Config{
		NodeName:        a.nodeName,
		RestConfig:      rest,
		OVSDB:           a.ovsdb,
		OVNRunDir:       a.ovnRunDir,
		SBAddress:       cluster.sbAddress,
		Databases:       cluster.databases(),
		EncapIP:         a.encapIP.addr,
		ChassisOfNode:   cluster.chassisName == chassisNode,
		Hosts:           annotation.Trust{Networks: cluster.hostNetworks},
		CertificateFile: filepath.Join(authority.NodeDir, authority.NodeFile),
		CNISocket:       a.cniSocket,
		CNIConfDir:      a.cniConfDir,
		CNIExclusive:    a.isCNIExclusive,
		MetricsAddr:     cluster.metricsAddress,
		MetricsTLS:      cluster.metricsTLS,
		HealthAddr:      a.healthAddress,
		CountPods:       a.countedPods,
		ShadowRate:      a.gateway.shadowRate,
		AvoidNullNAT:    a.avoidsNullNAT,
		Settings:        a.gatewaySettings(cluster),
	}
}

// gatewaySettings returns the configured settings, which the agent completes.
func (a *agentFlags) gatewaySettings(cluster *clusterFlags) gateway.Settings {
	g := &a.gateway
	layout, _ := verdict.ParseLayout(g.layout) // the setting allows only names of layouts

	return gateway.Settings{
		Wiring: gateway.Wiring{
			Uplink:    a.uplink,
			Layout:    layout,
			Backend:   gateway.Backend(g.backend),
			VLAN:      uint16(g.vlan),
			Addresses: g.addresses,
			NextHops:  a.nextHops,
			Datapath:  a.datapath,
		},
		Cluster: gateway.Cluster{
			SNATPorts:     cluster.snatPorts,
			NodePorts:     a.servesNodePorts,
			NodePortRange: a.nodePortRange,
			ServiceCIDRs:  cluster.serviceCIDRs,
			ExternalIPs:   cluster.externalIPs,
			TrustSlices:   cluster.trustSlices,
			Shares:        cluster.shares,
			PodCIDRs:      cluster.subnets.prefixes(),
			PodTunnels:    cluster.podTunnels,
			Local:         g.mode == gatewayModeLocal,
			NoGateway:     g.mode == gatewayModeNone,
			BFD:           cluster.bfd,
			Routable:      g.routable,
			MTU:           cluster.mtu,
		},
		PinDir:        a.pinDir,
		RunDir:        a.runDir,
		OVSRunDir:     a.ovsRunDir,
		Watchdog:      a.watchdogArgs(),
		CgroupPath:    a.cgroupPath,
		CountServices: g.countServices,
		Shortcuts:     g.shortcuts == shortcutsAuto,
	}
}

func agentCommand(f *flag.FlagSet) action {
	s := newSettings(agentMetrics)
	s.declare(f, roleAgent)
	s.daemon.Declare(f, "ovnkube-agent")
	f.BoolVar(&s.replacesAgent, "replace", false, "first stop the agent that runs on this node, if any")
	cleanup := f.Bool("cleanup", false,
		"remove ovn-ebpf from this node, or hand it back to ovn-kubernetes if it was taken over, then exit")

	return func(ctx context.Context, _ []string, env *environment) error {
		if *cleanup {
			return cleanUpNode(ctx, env, s)
		}

		return runAgent(ctx, env, s)
	}
}

// runAgent runs the agent of the command 'ovnkube agent' or ovn-k8s-gateway-helper.
func runAgent(ctx context.Context, env *environment, s *settings) error {
	log, mistakes, err := s.loadForNode(ctx, env)
	if err != nil {
		return err
	}

	a, err := s.nodeAgent(s.cluster, log)
	if err = cmp.Or(mistakes, s.located(err)); err != nil {
		a.reportFailure(ctx, err, log)
		return err
	}

	return s.inDaemon(ctx, log, func(ctx context.Context, p *daemon.Process) error {
		err := s.runOnlyAgent(ctx, a, func(missing func() string) { p.Follow("", missing) }, log)
		if err != nil && ctx.Err() == nil {
			a.reportFailure(ctx, err, log)
		}

		return err
	})
}

// loadForNode loads the settings, with the host name as the default of the Node's name. It returns
// mistakes of the configuration apart from err, because an agent reports them about its Node.
func (s *settings) loadForNode(ctx context.Context, env *environment) (log *slog.Logger, mistakes, err error) {
	log, mistakes = s.load(ctx, env)
	if log == nil {
		return nil, nil, mistakes // no source could be read
	}

	if s.agent.nodeName == "" {
		if s.agent.nodeName, err = os.Hostname(); err != nil {
			return nil, nil, err
		}
	}

	return log, mistakes, nil
}

// nodeAgent is the agent of the configured mode.
type nodeAgent struct {
	nodeName string // of the Node object
	run      runFunc
	fail     func(error) error // records an error for ovnkube status
	api      *rest.Config      // nil if it is not configured
}

// nodeAgent returns the agent of the configured mode. If it returns an error, the configuration is
// invalid: the agent cannot run, but can report the error.
func (s *settings) nodeAgent(cluster *clusterFlags, log *slog.Logger) (nodeAgent, error) {
	if cluster.mode == modeUnderlay {
		config, err := s.agent.underlayConfig(cluster)

		return nodeAgent{
			nodeName: config.NodeName, fail: config.Fail, api: config.RestConfig,
			run: func(ctx context.Context, begun func(missing func() string)) error {
				config.Begun = begun
				return underlay.Run(ctx, config, log)
			},
		}, err
	}

	config, err := s.agent.config(cluster)

	return nodeAgent{
		nodeName: config.NodeName, fail: config.Fail, api: config.API(log),
		run: func(ctx context.Context, begun func(missing func() string)) error {
			config.Begun = begun
			return agent.Run(ctx, config, log)
		},
	}, err
}

// reportFailure records, for ovnkube status, the error with which the agent ends, and writes an
// Event about the Node.
func (a nodeAgent) reportFailure(ctx context.Context, failure error, log *slog.Logger) {
	// If another agent runs on this node, the record is about that agent.
	if !errors.Is(failure, daemon.ErrRunning) {
		if err := a.fail(failure); err != nil {
			log.Warn("cannot record the error for ovnkube status", "error", err)
		}
	}

	warnNode(ctx, a.api, a.nodeName, agentenv.AgentFailed, failure.Error(), log)
}

// warnNode writes an Event about a Node, for programs without a connection to the API server: an
// agent that ends, or a program that waits for something. Without access to the API server, config
// is nil and nothing is written.
func warnNode(ctx context.Context, config *rest.Config, node, reason, text string, log *slog.Logger) {
	if config == nil {
		return
	}

	c, err := agentcluster.New(config, node, annotation.Trust{}, agentcluster.Handlers{}, log)
	if err == nil {
		err = c.Warn(ctx, reason, text)
	}

	if err != nil {
		log.Warn("event not written", "reason", reason, "error", err)
	}
}

// agentPIDFile is the name of the agent's pid file in the run directory. There is one file on a
// node, and so one agent.
const agentPIDFile = "agent.pid"

// shutdownTimeout bounds the shutdown of an agent.
const shutdownTimeout = 30 * time.Second

// runOnlyAgent runs the agent as the only one of this node. The lock is the agent's pid file. If
// another agent holds it, runOnlyAgent stops that agent with --replace, and otherwise returns
// daemon.ErrRunning (wrapped). Without a pid file, for example on a read-only file system, the
// agent runs nevertheless.
func (s *settings) runOnlyAgent(
	ctx context.Context,
	a nodeAgent,
	begun func(missing func() string),
	log *slog.Logger,
) error {
	path := filepath.Join(s.agent.runDir, agentPIDFile)
	if s.replacesAgent {
		stopCtx, cancel := context.WithTimeout(ctx, shutdownTimeout)
		defer cancel()

		if err := daemon.Stop(stopCtx, path); err != nil {
			return fmt.Errorf("stop the running agent: %w", err)
		}
	}

	lock, err := daemon.WritePIDFile(path, false)
	switch {
	case errors.Is(err, daemon.ErrRunning):
		return fmt.Errorf("check for another agent: %w", err)
	case err != nil:
		log.Warn("cannot detect a second agent on this node", "error", err)
	}

	defer lock.Remove()

	return s.located(a.run(ctx, begun))
}
