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
		name: "ovn-k8s-overlay", group: groupFirst, summary: "set up nodes",
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

// overlayJoin is a node that joins the overlay.
type overlayJoin struct {
	*settings
	cluster4Or6 prefixes      // --cluster-ip-subnet
	subnet      prefixes      // of the node; empty: unchanged
	noGateway   bool          // unless gateway-init or another setting configures a gateway
	logFile     string        // log of the agent
	timeout     time.Duration // for the whole command
}

// join declares the flags of all three commands.
func join(f *flag.FlagSet) *overlayJoin {
	j := &overlayJoin{settings: newSettings(agentMetrics)}
	j.declare(f, allRoles)
	f.Var(&j.cluster4Or6, "cluster-ip-subnet", "`networks` of all pods, one per family, separated by commas")
	f.StringVar(&j.logFile, "agent-logfile", "/var/log/openvswitch/ovnkube-agent.log",
		"log `file` of the agent")
	f.DurationVar(&j.timeout, "timeout", 2*time.Minute, "maximum `time` until the node is ready")

	return j
}

// nodeInit returns master-init or minion-init, which differ in the name of a flag.
func nodeInit(kind string) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		j := join(f)
		f.Var(&j.subnet, kind+"-switch-subnet",
			"this node's part of the pod `networks`, one per family, separated by commas")

		return func(ctx context.Context, _ []string, env *environment) error {
			if len(j.subnet) == 0 {
				return fmt.Errorf("give --%s-switch-subnet", kind)
			}

			j.noGateway = true

			return j.run(ctx, env)
		}
	}
}

func gatewayInit(f *flag.FlagSet) action {
	j := join(f)
	nic := f.String("physical-interface", "", "dedicated `NIC` for OVN, without addresses of the host")
	bridge := f.String("bridge-interface", "",
		"OVS `bridge` with the NIC that host and OVN share, from nics-to-bridge")

	var ips addressPrefixes
	f.Var(&ips, "physical-ip",
		"gateway `addresses` with prefix length, one per family, separated by commas; with --bridge-interface those of the host")

	var nextHops addresses
	f.Var(&nextHops, "default-gw", "next `hops` outside, one per family, separated by commas")

	return func(ctx context.Context, _ []string, env *environment) error {
		if (*nic == "") == (*bridge == "") {
			return errors.New("use --physical-interface for a dedicated NIC, or --bridge-interface for one shared with the host")
		}

		if len(ips) == 0 {
			return errors.New("give --physical-ip")
		}

		// An earlier gateway-init may have configured another kind of gateway.
		j.Disregard("gateway-layout", "gateway-interface", "gateway-address", "gateway-nexthop", "gateway-mode")

		var errs []error

		put := func(name, value, where string) {
			errs = append(errs, j.give(map[string]string{name: value}, where))
		}

		if *bridge != "" {
			if err := hasAddresses(*bridge, ips); err != nil {
				return fmt.Errorf("%w (from --physical-ip)", err)
			}

			put("gateway-layout", verdict.Bridged.String(), "--bridge-interface")
			put("gateway-interface", *bridge, "--bridge-interface")
		} else {
			put("gateway-layout", verdict.Dedicated.String(), "--physical-interface")
			put("gateway-interface", *nic, "--physical-interface")
			put("gateway-address", ips.String(), "--physical-ip")
		}

		if j.Origin("gateway-mode").Source == setting.Default {
			put("gateway-mode", string(gatewayModeShared), "gateway-init")
		}

		if len(nextHops) > 0 {
			put("gateway-nexthop", nextHops.String(), "--default-gw")
		}

		if err := errors.Join(errs...); err != nil {
			return err
		}

		return j.run(ctx, env)
	}
}

// run joins the overlay.
func (j *overlayJoin) run(ctx context.Context, env *environment) error {
	log, err := j.load(ctx, env)
	if err != nil {
		return err
	}

	if len(j.cluster4Or6) > 0 {
		subnets := map[string]string{"cluster-subnets": j.clusterSubnets()}
		if err := j.give(subnets, "--cluster-ip-subnet"); err != nil {
			return err
		}
	}

	if j.noGateway && j.Origin("gateway-mode").Source == setting.Default {
		mode := map[string]string{"gateway-mode": string(gatewayModeNone)}
		if err := j.give(mode, "without gateway-init"); err != nil {
			return err
		}
	}

	given := j.Given() // for the next start and the other commands
	if err := j.leadAsFirst(); err != nil {
		return err
	}

	if j.agent.nodeName == "" {
		return errors.New("give --node-name, the name of this node's Node object")
	}

	lead, err := j.check()
	if err != nil {
		return err
	}

	late := fmt.Errorf("not ready after %s; the agent's log is %s, 'ovnkube status' says what is missing",
		j.timeout, j.logFile)

	ctx, cancel := context.WithTimeoutCause(ctx, j.timeout, late)
	defer cancel()

	o, err := j.dialOVS(ctx)
	if err != nil {
		return err
	}
	defer o.Close()

	if err := j.giveSubnet(ctx, lead.RestConfig, log); err != nil {
		return err
	}

	before, err := o.ExternalIDs(ctx)
	if err != nil {
		return err
	}

	for _, key := range j.Disregarded() {
		if _, is := given[key]; !is && before[key] != "" {
			given[key] = ""
		}
	}

	former, err := daemon.Running(j.pidFile())
	if err != nil {
		return err
	}

	if err := o.SetExternalIDs(ctx, given); err != nil {
		return err
	}

	if err := j.start(ctx, env, lead, log); err != nil {
		if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
			err = cause
		}

		return errors.Join(err, j.takeBack(ctx, o, given, before, former != 0, log))
	}

	log.Info("the node is part of the overlay", "node", j.agent.nodeName)

	return nil
}

// takeBack undoes a failed command: it removes the stored settings, so that later commands and
// boots do not use them, and restarts the agent that the command has stopped.
func (j *overlayJoin) takeBack(
	ctx context.Context,
	o *ovs.Client,
	given, before map[string]string,
	agent bool,
	log *slog.Logger,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTime)
	defer cancel()

	was := map[string]string{}
	for key := range given {
		was[key] = before[key]
	}

	if err := o.SetExternalIDs(ctx, was); err != nil {
		return fmt.Errorf("restore the settings: %w", err)
	}

	log.Info("settings restored")

	if !agent {
		return nil
	}

	err := daemon.Spawn(ctx, daemon.Background{Args: j.agentCommand(), Dir: "/"})
	if !errors.Is(err, daemon.ErrDetached) {
		return fmt.Errorf("restart the previous agent: %w", err)
	}

	log.Info("previous agent restarted")

	return nil
}

// takeBackTime bounds the cleanup after a failure.
const takeBackTime = 30 * time.Second

// pidFile returns the path of the agent's pid file.
func (j *overlayJoin) pidFile() string { return filepath.Join(j.agent.runDir, agentPIDFile) }

// clusterSubnets appends to each network the host prefix length, taken from the node's subnet, as
// all nodes share it.
func (j *overlayJoin) clusterSubnets() string {
	list := clusterSubnets{}

	for _, p := range j.cluster4Or6 {
		c := clusterSubnet{prefix: p, hostLen: 24}
		if p.Addr().Is6() {
			c.hostLen = 64
		}

		for _, have := range j.cluster.subnets { // set by an earlier command
			if have.prefix == p {
				c.hostLen = have.hostLen
			}
		}

		for _, part := range j.subnet {
			if part.Addr().Is4() == p.Addr().Is4() {
				c.hostLen = part.Bits()
			}
		}

		list = append(list, c)
	}

	return list.String()
}

// check returns invalid combinations before any change, and the controller's configuration.
func (j *overlayJoin) check() (controller.Config, error) {
	var errs []error

	for _, part := range j.subnet {
		inside := func(all clusterSubnet) bool { return all.prefix.Overlaps(part) && all.prefix.Bits() < part.Bits() }
		if !slices.ContainsFunc(j.cluster.subnets, inside) {
			errs = append(errs, fmt.Errorf("switch subnet %s is not in the cluster's subnets, %s",
				part, j.cluster.subnets.String()))
		}
	}

	_, err1 := j.agent.config(j.cluster)
	lead, err2 := j.controller.config(j.cluster)
	lead.MetricsAddr = "" // used by another process
	lead.Identity = fmt.Sprintf("%s_init_%d", j.agent.nodeName, os.Getpid())

	return lead, j.located(errors.Join(append(errs, err1, err2)...))
}

// giveSubnet writes the node's subnet to the annotation that the controller reads. An existing
// subnet stays, as pods have addresses in it.
func (j *overlayJoin) giveSubnet(ctx context.Context, api *rest.Config, log *slog.Logger) error {
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

	if len(j.subnet) == 0 {
		return nil
	}

	have, err := annotation.ParseNodeSubnets(node.Annotations)
	switch {
	case err == nil && slices.Equal(have, j.subnet):
		return nil
	case err == nil:
		return fmt.Errorf("node %s has the subnet %s already, and its pods addresses in it: to have %s, take it out of the cluster first",
			name, joined(have), j.subnet.String())
	case !errors.Is(err, annotation.ErrNotSet):
		return fmt.Errorf("node %s: %w", name, err)
	}

	// A faster controller wins, and the retry reports the conflict.
	subnets := map[string]string{annotation.NodeSubnets: annotation.FormatNodeSubnets(j.subnet)}
	patch := annotation.Patch(metav1.ObjectMeta{ResourceVersion: node.ResourceVersion}, subnets)

	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("write the subnet of Node %s: %w", name, err)
	}

	log.Info("subnet assigned", "node", name, "subnet", j.subnet.String())

	return nil
}

// start starts the agent in place of an older one, and runs the controller until the agent is
// ready.
func (j *overlayJoin) start(
	ctx context.Context,
	env *environment,
	lead controller.Config,
	log *slog.Logger,
) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, done := context.WithCancel(ctx)

	group.Go(func() error { return controller.Run(ctx, lead, log.With(slog.String("role", "controller"))) })
	group.Go(func() error {
		defer done()

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

// hasAddresses returns an error for each address that the device lacks.
func hasAddresses(device string, want []netip.Prefix) error {
	all, err := link.Addresses()
	if err != nil {
		return err
	}

	var errs []error

	for _, w := range want {
		wanted := func(a link.Address) bool { return a.Device == device && a.Prefix == w }
		if !slices.ContainsFunc(all, wanted) {
			errs = append(errs, fmt.Errorf("%s lacks the address %s", device, w))
		}
	}

	return errors.Join(errs...)
}
