package agent

import (
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

// record writes the agent's configuration for "ovnkube status". The gateway does not depend on it.
func (a *agent) record() {
	c, s := a.cfg, a.cfg.Settings
	r := status.Record{
		Node: c.NodeName, Started: time.Now().UTC().Truncate(time.Second),
		Wiring: status.Wiring{
			Layout: string(s.Layout), Backend: string(s.Backend), Mode: "shared", Datapath: s.Datapath,
			Uplink: s.Uplink, Bridge: s.Bridge, VLAN: s.VLAN, NoEBPF: s.NoEBPF,
		},
		Paths: status.Paths{
			PinDir: c.PinDir, OVSDB: c.OVSDB, OVSRunDir: c.OVSRunDir, OVNRunDir: c.OVNRunDir, Metrics: c.MetricsAddr, MetricsTLS: c.MetricsTLS.On(), CNISocket: c.CNISocket,
		},
	}
	if s.Local {
		r.Wiring.Mode = "local"
	}
	if s.None {
		r.Wiring.Mode = "none"
	}
	if c.CNIConfDir != "" {
		r.Paths.ConfList = filepath.Join(c.CNIConfDir, ConfListName)
	}
	r.Ports.First, r.Ports.Last, r.Ports.NodePorts = s.SNATPorts.First, s.SNATPorts.Last, s.NodePorts
	if err := status.Write(c.RunDir, r); err != nil {
		a.log.Warn("cannot write the record for ovnkube status", "error", err)
	}
}
