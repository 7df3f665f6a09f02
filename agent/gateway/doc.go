// Package gateway keeps the node's North-South gateway in its desired state, in one of three
// layouts (verdict.Direct, Bridged, Dedicated) and with one of two backends: eBPF programs at the uplink
// and the bridge, or OpenFlow flows on the bridge.
//
// Gateway is a loop over parts, each with its own state. No part knows the Gateway:
//
//	part            file                              state
//	Inputs          inputs.go                         what other parts of the agent tell
//	formerAddresses former.go                         addresses that the host has lost
//	tracker         track.go, takeover.go             connections of before a takeover, use of the SNAT range
//	Services        services.go, tables.go            frontends and their tables; a loop of its own
//	topology        bridge.go, move.go, nogateway.go  uplink, bridge and what the host has on it
//	backend         backend.go                        whose a packet is: programs.go or flowbackend.go
//	flowTable       flows.go                          the bridge's flows, of either backend
//	hostUse         host.go                           what the host itself uses of the node's addresses
//	recorder        record.go                         repairs and what optional parts lack
//	View            gateway.go                        the node and the fault that others see
//
// Pure functions compute what should be (desired.go, state.go, mtu.go, hairpin.go, networks.go,
// takeover.go, ports.go, and the packages service, verdict and openflow). apply.go has the parts
// bring it about, in the order in which a node never black-holes its host: host addresses before
// programs, programs before flows, flows before the bridge mapping that connects OVN, and a
// replacement before what it replaces goes.
//
// A change of a device, an address, a filter, the OVS database, the OpenFlow connection or an input
// runs the whole of it again. A change of a Service runs it only if more than the Services' tables
// changes. Programs that were detached are looked for four times per second.
package gateway
