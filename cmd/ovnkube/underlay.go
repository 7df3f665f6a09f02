package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/pool"
	"github.com/ovn-ebpf/ovn-ebpf/agent/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// Modes of the cluster.
const modeOverlay, modeUnderlay = "overlay", "underlay"

// underlayFlags are the settings of the agent in underlay mode.
type underlayFlags struct {
	nic, vif string        // vif is the UUID of the NIC's port in Neutron
	rest     time.Duration // for which no new pod gets the port of a deleted one
}

func newUnderlayFlags() underlayFlags { return underlayFlags{rest: time.Minute} }

func (u *underlayFlags) settings() []*setting.Setting {
	return []*setting.Setting{
		{
			Flag:    "underlay-interface",
			Section: "underlay",
			Key:     "interface",
			Value:   setting.Text(&u.nic),
			About:   []string{"NIC"},
			Usage: "in underlay mode, the network `interface` of the VM; default: the interface of the " +
				"default route",
		},
		{
			Flag:    "vif-id",
			Section: "underlay",
			Key:     "vif-id",
			Value:   setting.Text(&u.vif, optional(annotation.CheckUUID)),
			About:   []string{"VIF"},
			Usage: "in underlay mode, the `UUID` of the Neutron port of the VM's interface; default: " +
				"found by the interface's MAC address",
		},
		{
			Flag:    "underlay-rest",
			Section: "underlay",
			Key:     "rest",
			Value:   setting.Seconds(&u.rest),
			Usage: "in underlay mode, the `seconds` for which no new pod gets the port of a deleted pod. " +
				"In this time, load balancers and neighbours forget the port's address",
		},
	}
}

// underlayConfig returns the configuration of the agent in underlay mode.
func (a *agentFlags) underlayConfig(cluster *clusterFlags) (underlay.Config, error) {
	rest, err := cluster.api.restConfig()

	config := underlay.Config{
		NodeName:     a.nodeName,
		RestConfig:   rest,
		Interface:    a.underlay.nic,
		VIF:          a.underlay.vif,
		Rest:         a.underlay.rest,
		PinDir:       a.pinDir,
		RunDir:       a.runDir,
		CNISocket:    a.cniSocket,
		CNIConfDir:   a.cniConfDir,
		CNIExclusive: a.isCNIExclusive,
		MetricsAddr:  cluster.metricsAddress,
		MetricsTLS:   cluster.metricsTLS,
	}
	if err != nil {
		return config, err
	}

	return config, config.Validate()
}

const poolDetail = `Each pod of a node in underlay mode has a port of the node's pool, with a VLAN tag, a MAC address and
IP addresses. The states of ports are:

  free      a new pod can get it
  resting   its pod has gone less than --underlay-rest ago
  used      a pod has it
  held      the controller keeps it from new pods, because it is not as it was made
  missing   a pod has it, but the controller no longer publishes it

It reads the agent's files and works without the agent and without the API server.`

func underlayCommands() *command {
	return &command{
		name:    modeUnderlay,
		group:   groupLook,
		summary: "pool: this node's ports in underlay mode",
		children: []*command{
			{
				name:    "pool",
				summary: "list the ports of this node's pool, and their pods",
				detail:  poolDetail,
				setup:   poolCommand,
			},
		},
	}
}

func poolCommand(f *flag.FlagSet) action {
	agentFinder := newFinder(f, "underlay-rest")
	asJSON := f.Bool("json", false, "an array instead of a table")

	return func(ctx context.Context, _ []string, env *environment) error {
		found, err := agentFinder.find(ctx, env)
		if err != nil {
			return err
		}

		if found.errRecord != nil {
			return found.errRecord
		}

		if !found.record.Underlay() {
			return errors.New("list the node's pool: this node is not in underlay mode")
		}

		ports, err := underlay.Pool(found.runDir, found.record.Node, agentFinder.agent.underlay.rest, time.Now())
		if err != nil {
			return err
		}

		if *asJSON {
			return env.printJSON(ports)
		}

		return pool.Table(env.stdout, found.record.Node, ports)
	}
}
