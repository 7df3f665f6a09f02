package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/controller"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const initDetail = `It stores its settings in external_ids of Open vSwitch, assigns the Node its subnet, and starts the node's agent in the
background (pid file agent.pid in --run-dir, log --agent-logfile), which sets up the node and serves its pods. It returns
when the node is ready. Until then it acts as the controller, unless a ` + watcherName + ` runs. It is idempotent.
The API server is that of external_ids:k8s-api-server, k8s-ca-certificate and k8s-api-token, or of the flags for it; every
setting of 'ovnkube agent' and 'ovnkube controller' is a flag here, too.`

func overlayCommands() *command {
	return &command{
		name: "ovn-k8s-overlay", group: groupFirstReleases, summary: "set up nodes",
		children: []*command{
			{
				name:    "master-init",
				summary: "make this node the master: part of the overlay",
				detail:  initDetail,
				setup:   nodeInit("master"),
			},
			{
				name:    "minion-init",
				summary: "make this node a minion: part of the overlay",
				detail:  initDetail,
				setup:   nodeInit("minion"),
			},
			{
				name:    "gateway-init",
				summary: "make this node a gateway of the overlay, with a dedicated NIC or one shared with the host",
				detail:  initDetail,
				setup:   gatewayInit,
			},
		},
	}
}

// overlayJoin adds this node to the overlay; run has the steps. Its fields are the flags of the
// three commands. gateway-init has no flag for nodeSubnets, and its further flags are
// gatewayInitFlags.
type overlayJoin struct {
	*settings
	podNetworks prefixes      // --cluster-ip-subnet: the pod networks of the cluster
	nodeSubnets prefixes      // this node's part of them; empty: as the controller chooses
	isPlainNode bool          // the command sets up no gateway; another setting still can
	logFile     string        // log of the agent
	timeout     time.Duration // for the whole command
}

// newOverlayJoin declares the flags of all three commands.
func newOverlayJoin(f *flag.FlagSet) *overlayJoin {
	j := &overlayJoin{settings: newSettings(agentMetrics)}
	j.declare(f, allRoles)
	f.Var(&j.podNetworks, "cluster-ip-subnet", "`networks` of all pods, one per family, separated by commas")
	f.StringVar(&j.logFile, "agent-logfile", "/var/log/openvswitch/ovnkube-agent.log",
		"log `file` of the agent")
	f.DurationVar(&j.timeout, "timeout", 2*time.Minute, "maximum `time` until the node is ready")

	return j
}

// nodeInit returns the setup of master-init or minion-init. They do the same, and differ in the
// name of a flag, --master-switch-subnet or --minion-switch-subnet.
func nodeInit(kind string) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		j := newOverlayJoin(f)
		f.Var(&j.nodeSubnets, kind+"-switch-subnet",
			"this node's part of the pod `networks`, one per family, separated by commas")

		return func(ctx context.Context, _ []string, env *environment) error {
			if len(j.nodeSubnets) == 0 {
				return fmt.Errorf("give --%s-switch-subnet", kind)
			}

			j.isPlainNode = true

			return j.run(ctx, env)
		}
	}
}

// gatewayInitFlags are the flags of gateway-init only.
type gatewayInitFlags struct {
	nic, bridge string // one of both
	addresses   addressPrefixes
	nextHops    addresses
}

func gatewayInit(f *flag.FlagSet) action {
	j := newOverlayJoin(f)

	var g gatewayInitFlags
	f.StringVar(&g.nic, "physical-interface", "", "dedicated `NIC` for OVN, without addresses of the host")
	f.StringVar(&g.bridge, "bridge-interface", "",
		"OVS `bridge` with the NIC that host and OVN share, from nics-to-bridge")
	f.Var(&g.addresses, "physical-ip",
		"gateway `addresses` with prefix length, one per family, separated by commas; with --bridge-interface those of the host")
	f.Var(&g.nextHops, "default-gw", "next `hops` outside, one per family, separated by commas")

	return func(ctx context.Context, _ []string, env *environment) error {
		if (g.nic == "") == (g.bridge == "") {
			return errors.New("use --physical-interface for a dedicated NIC, or --bridge-interface for one shared with the host")
		}

		if len(g.addresses) == 0 {
			return errors.New("give --physical-ip")
		}

		if err := j.putGateway(&g); err != nil {
			return err
		}

		return j.run(ctx, env)
	}
}

// putGateway sets the settings of the gateway that the flags describe.
func (j *overlayJoin) putGateway(g *gatewayInitFlags) error {
	// An earlier gateway-init may have configured another kind of gateway.
	j.Disregard("gateway-layout", "gateway-interface", "gateway-address", "gateway-nexthop", "gateway-mode")

	var errs []error

	put := func(name, value, where string) {
		errs = append(errs, j.putAll(map[string]string{name: value}, where))
	}

	if g.bridge != "" {
		if err := checkAddresses(g.bridge, g.addresses); err != nil {
			return fmt.Errorf("%w (from --physical-ip)", err)
		}

		put("gateway-layout", verdict.Bridged.String(), "--bridge-interface")
		put("gateway-interface", g.bridge, "--bridge-interface")
	} else {
		put("gateway-layout", verdict.Dedicated.String(), "--physical-interface")
		put("gateway-interface", g.nic, "--physical-interface")
		put("gateway-address", g.addresses.String(), "--physical-ip")
	}

	if j.Origin("gateway-mode").Source == setting.Default {
		put("gateway-mode", string(gatewayModeShared), "gateway-init")
	}

	if len(g.nextHops) > 0 {
		put("gateway-nexthop", g.nextHops.String(), "--default-gw")
	}

	return errors.Join(errs...)
}

// checkAddresses returns an error for each of the addresses that the device does not have.
func checkAddresses(device string, addresses []netip.Prefix) error {
	all, err := link.Addresses()
	if err != nil {
		return err
	}

	var errs []error

	for _, prefix := range addresses {
		isFound := func(a link.Address) bool { return a.Device == device && a.Prefix == prefix }
		if !slices.ContainsFunc(all, isFound) {
			errs = append(errs, fmt.Errorf("%s lacks the address %s", device, prefix))
		}
	}

	return errors.Join(errs...)
}

// run joins the overlay: it configures this node, assigns its subnet, stores the settings for the
// next start and for the other commands, and starts the agent. If the agent does not become ready,
// the stored settings are as before.
func (j *overlayJoin) run(ctx context.Context, env *environment) error {
	log, err := j.load(ctx, env)
	if err != nil {
		return err
	}

	stored, err := j.configure()
	if err != nil {
		return err
	}

	controllerConfig, err := j.check()
	if err != nil {
		return err
	}

	errTimeout := fmt.Errorf("not ready after %s; the agent's log is %s, 'ovnkube status' says what is missing",
		j.timeout, j.logFile)

	ctx, cancel := context.WithTimeoutCause(ctx, j.timeout, errTimeout)
	defer cancel()

	client, err := j.dialOVS(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	if err := j.assignSubnet(ctx, controllerConfig.RestConfig, log); err != nil {
		return err
	}

	former, err := j.readFormer(ctx, client)
	if err != nil {
		return err
	}

	// Without this, a former gateway's values would be mixed with those of this command.
	for _, key := range j.Disregarded() {
		if _, isStored := stored[key]; !isStored && former.externalIDs[key] != "" {
			stored[key] = ""
		}
	}

	if err := client.SetExternalIDs(ctx, stored); err != nil {
		return err
	}

	if err := j.start(ctx, env, controllerConfig, log); err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
			err = cause
		}

		return errors.Join(err, j.undo(ctx, client, stored, former, log))
	}

	log.Info("the node is part of the overlay", "node", j.agent.nodeName)

	return nil
}

// configure completes the settings by those that the command implies. It returns the ones to store
// in external_ids: those of the command line, without the defaults of ovn-kubernetes' first
// releases.
func (j *overlayJoin) configure() (map[string]string, error) {
	if len(j.podNetworks) > 0 {
		subnets := map[string]string{"cluster-subnets": j.clusterSubnets()}
		if err := j.putAll(subnets, "--cluster-ip-subnet"); err != nil {
			return nil, err
		}
	}

	if j.isPlainNode && j.Origin("gateway-mode").Source == setting.Default {
		mode := map[string]string{"gateway-mode": string(gatewayModeNone)}
		if err := j.putAll(mode, "the command, which sets up no gateway"); err != nil {
			return nil, err
		}
	}

	stored := j.Given()
	if err := j.defaultToFirstReleases(); err != nil {
		return nil, err
	}

	if j.agent.nodeName == "" {
		return nil, errors.New("give --node-name, the name of this node's Node object")
	}

	return stored, nil
}

// formerState is the state of the node before the command.
type formerState struct {
	externalIDs map[string]string // of Open vSwitch
	isRunning   bool              // an agent runs, which this command replaces
}

// readFormer returns the state of the node before the command changes anything.
func (j *overlayJoin) readFormer(ctx context.Context, client *ovs.Client) (formerState, error) {
	externalIDs, err := client.ExternalIDs(ctx)
	if err != nil {
		return formerState{}, err
	}

	pid, err := daemon.Running(j.pidFile())

	return formerState{externalIDs, pid != 0}, err
}

// undo undoes a failed command. It restores the settings that the command has stored, so that later
// commands and boots do not use them, and restarts the agent that the command has stopped.
func (j *overlayJoin) undo(
	ctx context.Context,
	client *ovs.Client,
	stored map[string]string,
	former formerState,
	log *slog.Logger,
) error {
	// The command's own time is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()

	restored := map[string]string{}
	for key := range stored {
		restored[key] = former.externalIDs[key] // "" removes the key
	}

	if err := client.SetExternalIDs(ctx, restored); err != nil {
		return fmt.Errorf("restore the settings: %w", err)
	}

	log.Info("settings restored")

	if !former.isRunning {
		return nil
	}

	err := daemon.Spawn(ctx, daemon.Background{Args: j.agentCommand(), Dir: "/"})
	if !errors.Is(err, daemon.ErrDetached) {
		return fmt.Errorf("restart the previous agent: %w", err)
	}

	log.Info("previous agent restarted")

	return nil
}

// undoTimeout bounds undo.
const undoTimeout = 30 * time.Second

// pidFile returns the path of the agent's pid file.
func (j *overlayJoin) pidFile() string { return filepath.Join(j.agent.runDir, agentPIDFile) }

// clusterSubnets returns the value of the setting cluster-subnets: each pod network with the prefix
// length of a node's part. All nodes have the same length, so that of this node's subnet is used,
// or else that of an earlier command.
func (j *overlayJoin) clusterSubnets() string {
	list := clusterSubnets{}

	for _, p := range j.podNetworks {
		c := clusterSubnet{prefix: p, hostLen: 24}
		if p.Addr().Is6() {
			c.hostLen = 64
		}

		for _, earlier := range j.cluster.subnets {
			if earlier.prefix == p {
				c.hostLen = earlier.hostLen
			}
		}

		for _, subnet := range j.nodeSubnets {
			if subnet.Addr().Is4() == p.Addr().Is4() {
				c.hostLen = subnet.Bits()
			}
		}

		list = append(list, c)
	}

	return list.String()
}

// check returns an error for invalid combinations of settings, before the node is changed. It
// returns the configuration of the controller that runs until the node is ready.
func (j *overlayJoin) check() (controller.Config, error) {
	var errs []error

	for _, subnet := range j.nodeSubnets {
		contains := func(network clusterSubnet) bool {
			return network.prefix.Overlaps(subnet) && network.prefix.Bits() < subnet.Bits()
		}
		if !slices.ContainsFunc(j.cluster.subnets, contains) {
			errs = append(errs, fmt.Errorf("switch subnet %s is not in the cluster's subnets, %s",
				subnet, j.cluster.subnets.String()))
		}
	}

	_, errAgent := j.agent.config(j.cluster)
	config, errController := j.controller.config(j.cluster)
	config.MetricsAddr = "" // another controller of this host may use the address
	config.Identity = fmt.Sprintf("%s_init_%d", j.agent.nodeName, os.Getpid())

	return config, j.located(errors.Join(append(errs, errAgent, errController)...))
}

// assignSubnet writes the node's subnet, if the command line has one, to the annotation that the
// controller reads. An existing subnet stays, as pods have addresses in it.
func (j *overlayJoin) assignSubnet(ctx context.Context, api *rest.Config, log *slog.Logger) error {
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return err
	}

	name := j.agent.nodeName

	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no Node %s: start its kubelet, or create the Node, first", name)
	}

	if err != nil {
		return fmt.Errorf("ask the API server for Node %s: %w", name, err)
	}

	if len(j.nodeSubnets) == 0 {
		return nil
	}

	assigned, err := annotation.ParseNodeSubnets(node.Annotations)
	switch {
	case err == nil && slices.Equal(assigned, j.nodeSubnets):
		return nil
	case err == nil:
		return fmt.Errorf("node %s has the subnet %s already, and its pods addresses in it: to have %s, take it out of the cluster first",
			name, joined(assigned), j.nodeSubnets.String())
	case !errors.Is(err, annotation.ErrNotSet):
		return fmt.Errorf("node %s: %w", name, err)
	}

	// If a controller assigns a subnet at the same time, the API server refuses this patch, because of
	// its resource version. A second try of the user then reports the other subnet.
	subnets := map[string]string{annotation.NodeSubnets: annotation.FormatNodeSubnets(j.nodeSubnets)}
	patch := annotation.Patch(metav1.ObjectMeta{ResourceVersion: node.ResourceVersion}, subnets)

	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("write the subnet of Node %s: %w", name, err)
	}

	log.Info("subnet assigned", "node", name, "subnet", j.nodeSubnets.String())

	return nil
}

// start starts the agent in place of the one that runs, if any, and returns when it is ready. Until
// then, a controller runs in this process, because the cluster may not have another one yet.
func (j *overlayJoin) start(
	ctx context.Context,
	env *environment,
	controllerConfig controller.Config,
	log *slog.Logger,
) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, endController := context.WithCancel(ctx)

	group.Go(func() error {
		return controller.Run(ctx, controllerConfig, log.With(slog.String("role", "controller")))
	})
	group.Go(func() error {
		defer endController()

		err := daemon.Spawn(ctx, daemon.Background{
			Args: j.agentCommand(), Dir: "/", UntilReady: true,
			Waiting: func(what string) { fmt.Fprintln(env.stderr, "the agent is waiting for", what) },
		})
		if errors.Is(err, daemon.ErrDetached) {
			return nil
		}

		return err
	})

	return group.Wait()
}

// agentCommand returns the agent's command line; its other settings are in external_ids.
func (j *overlayJoin) agentCommand() []string {
	args := []string{
		"ovnkube", "agent",
		"--ovsdb", j.agent.ovsdb, "--logfile", j.logFile, "--detach", "--replace",
	}
	if j.configFile != "" {
		args = append(args, "--config-file", j.configFile)
	}

	return args
}
