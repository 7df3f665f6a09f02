// Package gateway keeps the node's North-South gateway in its desired state, in
// one of three layouts (Direct, Bridged, Dedicated) and with one of two backends:
// eBPF programs at the uplink and the bridge, or OpenFlow flows on the bridge.
//
// What should be is computed by pure functions (desired.go, state.go, hairpin.go,
// takeover.go, ports.go, sockets.go, and the packages service, verdict and openflow) from
// what is; apply.go brings it about, in the order in which a node never black-holes
// its host: host addresses before programs, programs before flows, flows before
// the bridge mapping that lets OVN talk, and what replaces something before that
// goes. Any change of a device, an address, a filter, the OVS database, the
// OpenFlow connection, the Services or what is told by others runs the whole of it again;
// programs that were detached are looked for four times a second.
//
// move.go takes the uplink into the bridge and out of it (package nicbridge) when
// the layout asks for it. extras.go has what a node can do without: it is
// tried, said and counted, and keeps nothing else from its work.
package gateway
