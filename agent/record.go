package agent

import (
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// record writes the agent's configuration for "ovnkube status": at the start, and again when
// openOVS has completed the settings. An error is only logged, because the node works without the
// record.
func (a *agent) record() {
	c, s := a.cfg, a.cfg.Settings

	r := status.Record{
		Node: c.NodeName, Started: time.Now().UTC().Truncate(time.Second),
		Wiring: status.Wiring{
			Layout: s.Layout.String(), Backend: string(s.Backend), Mode: "shared", Datapath: s.Datapath,
			Uplink: s.Uplink, Bridge: s.Bridge, VLAN: s.VLAN, NoEBPF: s.NoEBPF, Shortcuts: s.Shortcuts,
		},
		Paths: c.paths(),
	}
	if s.Local {
		r.Wiring.Mode = "local"
	}

	if s.NoGateway {
		r.Wiring.Mode = "none"
	}

	if s.Shortcuts {
		r.Wiring.NoShortcuts = s.NoShortcuts()
	}

	r.Ports.First, r.Ports.Last, r.Ports.NodePorts = s.SNATPorts.First, s.SNATPorts.Last, s.NodePorts
	r.Ports.FirstNodePort, r.Ports.LastNodePort = s.NodePortRange.First, s.NodePortRange.Last

	if err := status.Write(c.RunDir, r); err != nil {
		a.log.Warn("cannot write the record for ovnkube status", "error", err)
	}
}

// Fail records for "ovnkube status" the error with which the agent has ended. It is for callers of
// Run. The configuration may be invalid.
func (c Config) Fail(failure error) error {
	r := status.Record{Node: c.NodeName, Paths: c.paths(), Failure: failure.Error()}

	return status.Complete(c.RunDir, r)
}

// paths returns the files, sockets and addresses that "ovnkube status" reads.
func (c Config) paths() status.Paths {
	p := status.Paths{
		PinDir:     c.PinDir,
		RunDir:     c.RunDir,
		OVSDB:      c.OVSDB,
		OVSRunDir:  c.OVSRunDir,
		OVNRunDir:  c.OVNRunDir,
		Metrics:    c.MetricsAddr,
		MetricsTLS: c.MetricsTLS.On(),
		CNISocket:  c.CNISocket,
	}
	if c.CNIConfDir != "" {
		p.ConfList = filepath.Join(c.CNIConfDir, cniconf.File)
	}

	return p
}
