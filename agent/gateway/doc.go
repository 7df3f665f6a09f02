// Package gateway keeps the node's North-South gateway in its desired state, in one of three
// layouts (verdict.Direct, Bridged, Dedicated) and with one of two backends: eBPF programs at the
// uplink and the bridge, or OpenFlow flows on the bridge.
//
// Read gateway.go first, which connects the parts, then apply.go, which is one round of the loop,
// and backend.go, which is the interface of the two backends.
//
// # Parts
//
// Gateway is a loop over parts, each with its own state. No part refers to the Gateway:
//
//	part            file                              state
//	Inputs          inputs.go                         what other parts of the agent report
//	formerAddresses former.go                         addresses that the host has lost
//	tracker         track.go, conntrack.go            connections from before a takeover, use of the SNAT range
//	Services        services.go, tables.go, pace.go   frontends and their tables; a loop of its own
//	untranslated    untranslated.go                   connections that are older than their frontend
//	topology        bridge.go, move.go, nogateway.go  uplink, bridge, and the host's configuration on them
//	routeKeeper     routes.go                         the host's routes, which it restores
//	addressKeeper   address.go                        the gateway's addresses, kept while the host lacks them
//	backend         backend.go                        the owner of a packet: programs.go or flowbackend.go
//	flowTable       flows.go                          the bridge's flows, of either backend
//	hostUse         host.go                           ports and protocols that the host itself uses
//	ShortcutManager shortcuts.go                      programs on pods' devices
//	recorder        record.go                         repairs, and faults of optional parts
//	View            view.go                           the node and the fault, for other parts of the agent
//
// These files belong to the backends:
//
//	programs.go       eBPF programs
//	flowbackend.go    OpenFlow flows; with connections.go, flowservices.go (counts), flowexplain.go
//
// The other files with state or effects of their own:
//
//	settings.go, encap.go  configuration, and the tunnel address before the gateway runs
//	reserve.go, ports.go   the SNAT range and node ports, reserved in the host's kernel
//	runfile.go             files with which the next agent continues
//	switch.go              Open vSwitch for nicbridge, which moves the uplink
//	cleanup.go             removal of the gateway from the node
//	takeover.go            ovn-kubernetes' configuration of the node, which Cleanup restores
//
// # A round
//
// Pure functions compute the desired state (node.go, state.go, mtu.go, hairpin.go, networks.go,
// conntrack.go, ports.go, and the packages service, verdict and openflow). apply.go has the parts
// apply it, in an order that never cuts the host off: host addresses before programs, programs
// before flows, flows before the bridge mapping that connects OVN, and a replacement before what it
// replaces.
//
// A change of a device, an address, a filter, the OVS database, the OpenFlow connection or an input
// runs the whole round again. A change of a Service runs it only if more than the Services' tables
// changes. The attachments of programs are checked four times per second.
//
// # Takeover
//
// A takeover is the start of an agent on a node where pods have connections on ports outside of the
// SNAT range, because they began with another gateway, such as ovn-kubernetes, or with another
// range. These connections continue (track.go). On a node of ovn-kubernetes, the agent also records
// the node's configuration, and Cleanup restores it (takeover.go).
package gateway
