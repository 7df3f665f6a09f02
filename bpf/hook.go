package bpf

import "github.com/cilium/ebpf"

// Names of the hooks: of their pinned links, and of clsact filters.
const (
	uplinkIngress = "uplink_ingress"
	uplinkEgress  = "uplink_egress"
	bridgeIngress = "bridge_ingress"
	bridgeEgress  = "bridge_egress"
)

// hook is a place where a program of ours runs, in some layout.
type hook struct {
	name    string
	program string // that of the layout
	bridge  bool   // on the gateway bridge, else on the uplink
	egress  bool
}

func (h hook) attachType() ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// layoutHooks are the hooks of each layout, in the order in which they are
// attached on a device: what is put onto the host's way out comes last.
var layoutHooks = [...][]hook{
	Direct: {
		{name: uplinkIngress, program: "uplink_ingress"},
		{name: bridgeIngress, program: "bridge_ingress", bridge: true},
	},
	Bridged: {
		{name: uplinkIngress, program: "bridged_uplink_in"},
		{name: uplinkEgress, program: "bridged_uplink_out", egress: true},
		{name: bridgeEgress, program: "bridged_bridge_out", bridge: true, egress: true},
		{name: bridgeIngress, program: "bridged_bridge_in", bridge: true},
	},
	Dedicated: {
		{name: uplinkIngress, program: "dedicated_uplink_in"},
		{name: uplinkEgress, program: "dedicated_uplink_out", egress: true},
	},
}

// allHooks are those of every layout, the uplink's first.
var allHooks = []hook{
	{name: uplinkIngress},
	{name: uplinkEgress, egress: true},
	{name: bridgeIngress, bridge: true},
	{name: bridgeEgress, bridge: true, egress: true},
}

// hooks are those of g's layout.
func (g *Gateway) hooks() []hook { return layoutHooks[g.opts.Config.Layout] }

func (g *Gateway) prog(h hook) *ebpf.Program { return g.progs[h.program] }
