package agent

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Directories of the databases of OVS and OVN: by default, by packages of Debian and Fedora, and in
// the chart. OVN's exist only on nodes with database servers.
const (
	ovsDatabase       = "/etc/openvswitch"
	ovnDatabaseDebian = "/var/lib/ovn"
	ovnDatabaseFedora = "/etc/ovn"
	ovnDatabaseChart  = "/var/lib/ovn-ebpf"
)

// watchEnvironment builds the watch for faults of the node that the agent cannot repair, without
// the checks of faults.go, which addParts adds. The result of api compares the clocks.
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
		Dirs: []string{
			a.cfg.RunDir, a.cfg.OVSRunDir, ovsDatabase, ovnDatabaseDebian, ovnDatabaseFedora, ovnDatabaseChart,
		},
		Missing: a.ready.Missing,
	}
	if a.cfg.CNIConfDir != "" {
		o.Dirs = append(o.Dirs, a.cfg.CNIConfDir)
	}

	if a.cfg.CgroupPath == "" { // not configured, so the agent looks for the mount itself
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
