package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Daemons of the first generation, each one of today's roles.
const (
	watcherName = "ovn-k8s-watcher"
	helperName  = "ovn-k8s-gateway-helper"
)

func watcherCommand() *command {
	return &command{
		name:    watcherName,
		group:   groupFirst,
		summary: "run the controller",
		detail: `Cluster and API server are read from external_ids of Open vSwitch, as written by ovn-k8s-overlay or
ovs-vsctl (k8s-api-server, k8s-ca-certificate, k8s-api-token); every setting of 'ovnkube controller' is a flag here, too.`,
		setup: func(f *flag.FlagSet) action {
			s := newSettings(controllerMetrics)
			s.declare(f, roleController)
			s.likeOVS(f, watcherName)
			overlay := f.Bool("overlay", false, "the cluster's network is an OVN overlay (the only mode)")

			return func(ctx context.Context, _ []string, env *environment) error {
				if !*overlay {
					return errors.New("--overlay is missing: OpenStack networks are not supported")
				}

				if err := s.leadAsFirst(); err != nil {
					return err
				}

				s.adoptLog()

				return runController(ctx, env, s)
			}
		},
	}
}

func helperCommand() *command {
	return &command{
		name:    helperName,
		group:   groupFirst,
		summary: "run the node agent, layout bridged",
		detail: `The helper's flows on the bridge are replaced by the agent's programs. It stops an agent started by ovn-k8s-overlay
on this node. Its settings have the same sources as those of ` + watcherName + `; every setting of 'ovnkube agent' is a flag
here, too. Create the bridge with ovn-k8s-util nics-to-bridge.`,
		setup: func(f *flag.FlagSet) action {
			s := newSettings(agentMetrics)
			s.declare(f, roleAgent)
			s.likeOVS(f, helperName)
			bridge := f.String("physical-bridge", "", "OVS `bridge` with the NIC and the host's addresses")
			nic := f.String("physical-interface", "", "`NIC` that is a port of the bridge")

			return func(ctx context.Context, _ []string, env *environment) error {
				if *bridge == "" || *nic == "" {
					return errors.New("--physical-bridge or --physical-interface is missing")
				}

				if err := s.checkMember(ctx, *bridge, *nic); err != nil {
					return err
				}

				bridged := map[string]string{"gateway-layout": verdict.Bridged.String(), "gateway-interface": *nic}
				if err := s.give(bridged, "of "+helperName); err != nil {
					return err
				}

				s.adoptLog()
				s.replaces = true

				return runAgent(ctx, env, s, false)
			}
		},
	}
}

// likeOVS declares the flags of an OVS daemon.
func (s *settings) likeOVS(f *flag.FlagSet, name string) {
	s.daemon.Declare(f, name)
	s.daemon.DeclareLog(f)
}

// leadAsFirst makes the controller behave as in the first generation, unless configured otherwise.
func (s *settings) leadAsFirst() error {
	values := map[string]string{"pod-annotation-ovn": "true", "allocate-node-subnets": allocateJoined}
	for name := range values {
		if s.Origin(name).Source != setting.Default {
			delete(values, name)
		}
	}

	return s.give(values, "of the first generation")
}

// adoptLog applies OVS's log flags.
func (s *settings) adoptLog() {
	if s.daemon.LogFile != "" {
		s.cluster.log.file = s.daemon.LogFile
	}

	s.cluster.log.verbosity = s.daemon.Verbosity
}

// give sets settings as if given on the command line.
func (s *settings) give(values map[string]string, where string) error {
	var errs []error
	for name, value := range values {
		errs = append(errs, s.Put(name, value, setting.Origin{Source: setting.CommandLine, Where: where}))
	}

	return errors.Join(errs...)
}

// checkMember returns an error unless nic is the physical port of the bridge.
func (s *settings) checkMember(ctx context.Context, bridge, nic string) error {
	o, err := s.dialOVS(ctx)
	if err != nil {
		return err
	}
	defer o.Close()

	have, port, err := o.GatewayBridge(ctx, bridge)
	switch {
	case err != nil:
		return err
	case have != bridge:
		return fmt.Errorf("OVS has no bridge %s: create it with 'ovn-k8s-util nics-to-bridge %s'",
			bridge, nic)
	case port != nic:
		return fmt.Errorf("the NIC in bridge %s is %q, not %s", bridge, port, nic)
	}

	return nil
}

// dialOVS connects to the node's OVS.
func (s *settings) dialOVS(ctx context.Context) (*ovs.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	return ovs.Dial(ctx, s.agent.ovsdb)
}
