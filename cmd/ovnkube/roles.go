package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os/exec"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
)

// Default metrics addresses of the roles.
const (
	controllerMetrics = "127.0.0.1:9409"
	agentMetrics      = "127.0.0.1:9410"
)

// roleFlagsCommand declares the command line of current ovn-kubernetes, which has flags instead of
// commands: -init-master runs the controller, -init-node the agent, and one process can run both.
func roleFlagsCommand(f *flag.FlagSet) action {
	s := newSettings("")
	s.declare(f, allRoles)
	s.daemon.Declare(f, "ovnkube")
	initMaster := f.String("init-master", "", "run the controller as the replica of this `name`")
	initNode := f.String("init-node", "", "run the node agent for the Node of this `name`")
	cleanupNode := f.String("cleanup-node", "",
		"remove ovn-ebpf from the node of this `name`, or hand it back to ovn-kubernetes if it was taken over, then exit")

	return func(ctx context.Context, _ []string, env *environment) error {
		if *cleanupNode != "" {
			if err := s.putAll(map[string]string{"node-name": *cleanupNode}, "-cleanup-node"); err != nil {
				return err
			}

			return cleanUpNode(ctx, env, s)
		}

		if *initMaster == "" && *initNode == "" {
			return errors.New("nothing to run: use a command, -init-master or -init-node; see 'ovnkube --help'")
		}

		return runRoles(ctx, env, s, *initMaster, *initNode)
	}
}

// roleFunc runs one role of a process that may have several. It reports its progress to p.
type roleFunc func(ctx context.Context, p *daemon.Process) error

// runRoles runs the controller as the replica initMaster, the agent for the Node initNode, or both,
// until one of them ends. An empty name is a role that does not run.
func runRoles(ctx context.Context, env *environment, s *settings, initMaster, initNode string) error {
	if initNode != "" {
		if err := s.putAll(map[string]string{"node-name": initNode}, "-init-node"); err != nil {
			return err
		}
	}

	log, err := s.load(ctx, env)
	if err != nil {
		return err
	}

	roles := map[string]roleFunc{}

	if initMaster != "" {
		s.controller.identity = initMaster

		if roles["controller"], err = s.controllerInProcess(log.With(slog.String("role", "controller"))); err != nil {
			return err
		}
	}

	if initNode != "" {
		if roles["agent"], err = s.agentInProcess(log.With(slog.String("role", "agent"))); err != nil {
			return err
		}
	}

	return s.inDaemon(ctx, log, func(ctx context.Context, p *daemon.Process) error {
		for name := range roles {
			p.Expect(name)
		}

		group, ctx := errgroup.WithContext(ctx)
		for _, run := range roles {
			group.Go(func() error { return run(ctx, p) })
		}

		return group.Wait()
	})
}

// controllerInProcess returns the controller as one of the process's roles.
func (s *settings) controllerInProcess(log *slog.Logger) (roleFunc, error) {
	const isAlone = false

	run, err := s.newController(s.withMetricsAddress(controllerMetrics), isAlone, log)

	return func(ctx context.Context, p *daemon.Process) error {
		return run(ctx, func(missing func() string) { p.Follow("controller", missing) })
	}, err
}

// agentInProcess returns the agent as one of the process's roles.
func (s *settings) agentInProcess(log *slog.Logger) (roleFunc, error) {
	a, err := s.nodeAgent(s.withMetricsAddress(agentMetrics), log)

	return func(ctx context.Context, p *daemon.Process) error {
		return s.runOnlyAgent(ctx, a, func(missing func() string) { p.Follow("agent", missing) }, log)
	}, s.located(err)
}

// withMetricsAddress returns a copy of the settings of the cluster for one of two roles in a
// process. The copy is needed because the roles have different default metrics addresses.
func (s *settings) withMetricsAddress(defaultAddress string) *clusterFlags {
	cluster := *s.cluster
	cluster.metricsAddress = cmp.Or(cluster.metricsAddress, defaultAddress)

	return &cluster
}

// inDaemon calls run in the process that the daemon options ask for: this one, or one in the
// background (--detach). With --detach, the process that the user started returns nil and does not
// call run.
//
// First it installs the seccomp filter (daemon.Confine). If that fails, run is called nevertheless,
// because a node without a network is worse than an unconfined process.
func (s *settings) inDaemon(
	ctx context.Context,
	log *slog.Logger,
	run func(context.Context, *daemon.Process) error,
) error {
	p, err := s.daemon.Start(ctx)
	if errors.Is(err, daemon.ErrDetached) {
		return nil
	}

	if err != nil {
		return err
	}

	defer p.End()

	_, errModprobe := exec.LookPath("modprobe") // if it exists, the agent loads the OVS module with it
	if err := daemon.Confine(errModprobe == nil); err != nil {
		log.Warn("the process is not confined", "error", err)
	}

	return run(ctx, p)
}
