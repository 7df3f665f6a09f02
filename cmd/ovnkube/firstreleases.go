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

// Names of two daemons of ovn-kubernetes' first releases (docs/first-generation.md). Here, the
// watcher runs the controller, and the helper runs the agent.
const (
	watcherName = "ovn-k8s-watcher"
	helperName  = "ovn-k8s-gateway-helper"
)

func watcherCommand() *command {
	return &command{
		name:    watcherName,
		group:   groupFirstReleases,
		summary: "run the controller",
		detail: `Cluster and API server are read from external_ids of Open vSwitch, as written by ovn-k8s-overlay or
ovs-vsctl (k8s-api-server, k8s-ca-certificate, k8s-api-token); every setting of 'ovnkube controller' is a flag here, too.`,
		setup: func(f *flag.FlagSet) action {
			s := newSettings(controllerMetrics)
			s.declare(f, roleController)
			s.declareDaemonFlags(f, watcherName)
			overlay := f.Bool("overlay", false, "the cluster's network is an OVN overlay (the only mode)")

			return func(ctx context.Context, _ []string, env *environment) error {
				if !*overlay {
					return errors.New("--overlay is missing: OpenStack networks are not supported")
				}

				if err := s.defaultToFirstReleases(); err != nil {
					return err
				}

				s.applyDaemonLogFlags()

				return runController(ctx, env, s)
			}
		},
	}
}

func helperCommand() *command {
	return &command{
		name:    helperName,
		group:   groupFirstReleases,
		summary: "run the node agent, layout bridged",
		detail: `The helper's flows on the bridge are replaced by the agent's programs. It stops an agent started by ovn-k8s-overlay
on this node. Its settings have the same sources as those of ` + watcherName + `; every setting of 'ovnkube agent' is a flag
here, too. Create the bridge with ovn-k8s-util nics-to-bridge.`,
		setup: func(f *flag.FlagSet) action {
			s := newSettings(agentMetrics)
			s.declare(f, roleAgent)
			s.declareDaemonFlags(f, helperName)
			bridge := f.String("physical-bridge", "", "OVS `bridge` with the NIC and the host's addresses")
			nic := f.String("physical-interface", "", "`NIC` that is a port of the bridge")

			return func(ctx context.Context, _ []string, env *environment) error {
				if *bridge == "" || *nic == "" {
					return errors.New("--physical-bridge or --physical-interface is missing")
				}

				if err := s.checkPhysicalPort(ctx, *bridge, *nic); err != nil {
					return err
				}

				bridged := map[string]string{"gateway-layout": verdict.Bridged.String(), "gateway-interface": *nic}
				if err := s.putAll(bridged, helperName); err != nil {
					return err
				}

				s.applyDaemonLogFlags()
				s.replacesAgent = true

				return runAgent(ctx, env, s)
			}
		},
	}
}

// declareDaemonFlags declares the flags that OVS's daemons have for the background and the log.
func (s *settings) declareDaemonFlags(f *flag.FlagSet, name string) {
	s.daemon.Declare(f, name)
	s.daemon.DeclareLog(f)
}

// defaultToFirstReleases makes the controller behave as in ovn-kubernetes' first releases where it
// is not configured otherwise.
func (s *settings) defaultToFirstReleases() error {
	values := map[string]string{"pod-annotation-ovn": "true", "allocate-node-subnets": allocateJoined}
	for name := range values {
		if s.Origin(name).Source != setting.Default {
			delete(values, name)
		}
	}

	return s.putAll(values, "the defaults of ovn-kubernetes' first releases")
}

// applyDaemonLogFlags gives the flags of OVS's daemons for the log precedence over the settings.
func (s *settings) applyDaemonLogFlags() {
	if s.daemon.LogFile != "" {
		s.cluster.log.file = s.daemon.LogFile
	}

	s.cluster.log.verbosity = s.daemon.Verbosity
}

// putAll sets settings as if they were on the command line. Errors about a setting name the text
// where as its source.
func (s *settings) putAll(values map[string]string, where string) error {
	var errs []error
	for name, value := range values {
		errs = append(errs, s.Put(name, value, setting.Origin{Source: setting.CommandLine, Where: where}))
	}

	return errors.Join(errs...)
}

// checkPhysicalPort returns an error unless the NIC is the physical port of the bridge.
func (s *settings) checkPhysicalPort(ctx context.Context, bridge, nic string) error {
	client, err := s.dialOVS(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	found, port, err := client.GatewayBridge(ctx, bridge)
	switch {
	case err != nil:
		return err
	case found != bridge:
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
