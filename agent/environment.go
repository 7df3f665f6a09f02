package agent

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Directories of databases in Debian's and Fedora's packages, and of the chart's databases. OVN's
// are there where its central part runs on this node.
const (
	ovsDatabase = "/etc/openvswitch"
	ovnDatabase = "/var/lib/ovn"
	ovnOfFedora = "/etc/ovn"
	ofChart     = "/var/lib/ovn-ebpf"
)

// watchEnvironment builds the watch of what the agent needs of the node but cannot repair.
func (a *agent) watchEnvironment(api *rest.Config) error {
	client, err := rest.HTTPClientFor(api)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}

	server, _, err := rest.DefaultServerUrlFor(api)
	if err != nil {
		return fmt.Errorf("find the API server's URL: %w", err)
	}

	o := environment.Options{
		Server: server.String(), Client: client, Warn: a.cluster.Warn, Log: a.log,
		Dirs:    []string{a.cfg.RunDir, a.cfg.OVSRunDir, ovsDatabase, ovnDatabase, ovnOfFedora, ofChart},
		Missing: a.ready.Missing,
	}
	if a.cfg.CNIConfDir != "" {
		o.Dirs = append(o.Dirs, a.cfg.CNIConfDir)
	}

	if a.cfg.CgroupPath == "" {
		o.Cgroup = bpf.CheckCgroup
	}

	if a.cfg.Datapath == ovs.DatapathNetdev {
		o.SwitchAborts = func(ctx context.Context) (bool, error) { return ovs.ConfusesNullNAT(ctx, a.cfg.OVSRunDir) }
	}

	a.environment = environment.New(o)
	a.ready.SetFaults(func() []string {
		var lines []string
		for _, f := range a.environment.Faults() {
			lines = append(lines, f.Line())
		}

		return lines
	})

	return nil
}
