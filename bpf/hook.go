package bpf

import (
	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Names of the hooks. The files of pinned links and the clsact filters have these names. They must
// never change, because the programs of earlier versions are found by them.
const (
	uplinkIngress = "uplink_ingress"
	uplinkEgress  = "uplink_egress"
	bridgeIngress = "bridge_ingress"
	bridgeEgress  = "bridge_egress"
)

// hook is an attachment point of a program: ingress or egress of a device. A device is the gateway
// bridge's internal port, the uplink, or the host's end of a pod's device. Ingress is where packets
// arrive at the host's stack, so packets from OVN are at the bridge's ingress.
type hook struct {
	name     string
	program  string // name of the program in a layout, or of a pod's; empty in allHooks
	onBridge bool   // on the gateway bridge's internal port, otherwise on the uplink or a pod's device
	egress   bool   // otherwise at ingress
}

// attachType returns the type of the hook for tcx.
func (h hook) attachType() ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}

	return ebpf.AttachTCXIngress
}

// layoutHooks are the hooks of each layout. They are attached in this order on each device. First
// are the hooks that decide packets, in the order of verdict.Direction: from the wire, from OVN,
// from the host. So the first hook is always uplink ingress, on which layoutOf and tests rely. A
// hook that decides nothing follows them.
var layoutHooks = [...][]hook{
	// The programs of this layout in gateway.bpf.c happen to have the names of their hooks. They
	// could be renamed, the hooks could not.
	verdict.Direct: {
		{name: uplinkIngress, program: "uplink_ingress"},
		{name: bridgeIngress, program: "bridge_ingress", onBridge: true},
	},
	verdict.Bridged: {
		{name: uplinkIngress, program: "bridged_uplink_in"},
		{name: uplinkEgress, program: "bridged_uplink_out", egress: true},
		{name: bridgeEgress, program: "bridged_bridge_out", onBridge: true, egress: true},
		{name: bridgeIngress, program: "bridged_bridge_in", onBridge: true},
	},
	verdict.Dedicated: {
		{name: uplinkIngress, program: "dedicated_uplink_in"},
		{name: uplinkEgress, program: "dedicated_uplink_out", egress: true},
	},
}

// allHooks are the hooks of all layouts, without programs. They are detached in this order. Uplink
// ingress is first: without its program, OVN gets no more packets in layout direct, and the host
// gets all of them, even if a later hook cannot be detached.
var allHooks = []hook{
	{name: uplinkIngress},
	{name: uplinkEgress, egress: true},
	{name: bridgeIngress, onBridge: true},
	{name: bridgeEgress, onBridge: true, egress: true},
}

// hooks returns the hooks of g's layout.
func (g *Gateway) hooks() []hook { return layoutHooks[g.opts.Config.Layout] }

// programOf returns the loaded program for a hook of g's layout or of a pod.
func (g *Gateway) programOf(h hook) *ebpf.Program { return g.progs[h.program] }
