package bpf

import (
	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Names of the hooks, used for pinned links and for clsact filters.
const (
	uplinkIngress = "uplink_ingress"
	uplinkEgress  = "uplink_egress"
	bridgeIngress = "bridge_ingress"
	bridgeEgress  = "bridge_egress"
)

// hook is an attachment point of a program in some layout.
type hook struct {
	name    string
	program string // of the layout
	bridge  bool   // on the gateway bridge, otherwise on the uplink
	egress  bool
}

func (h hook) attachType() ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}

	return ebpf.AttachTCXIngress
}

// layoutHooks are the hooks of each layout in the order of attachment per device. Programs on the
// host's egress path come last.
var layoutHooks = [...][]hook{
	verdict.Direct: {
		{name: uplinkIngress, program: "uplink_ingress"},
		{name: bridgeIngress, program: "bridge_ingress", bridge: true},
	},
	verdict.Bridged: {
		{name: uplinkIngress, program: "bridged_uplink_in"},
		{name: uplinkEgress, program: "bridged_uplink_out", egress: true},
		{name: bridgeEgress, program: "bridged_bridge_out", bridge: true, egress: true},
		{name: bridgeIngress, program: "bridged_bridge_in", bridge: true},
	},
	verdict.Dedicated: {
		{name: uplinkIngress, program: "dedicated_uplink_in"},
		{name: uplinkEgress, program: "dedicated_uplink_out", egress: true},
	},
}

// allHooks are the hooks of all layouts, those of the uplink first.
var allHooks = []hook{
	{name: uplinkIngress},
	{name: uplinkEgress, egress: true},
	{name: bridgeIngress, bridge: true},
	{name: bridgeEgress, bridge: true, egress: true},
}

// hooks returns the hooks of g's layout.
func (g *Gateway) hooks() []hook { return layoutHooks[g.opts.Config.Layout] }

func (g *Gateway) prog(h hook) *ebpf.Program { return g.progs[h.program] }
