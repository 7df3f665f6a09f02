// Package gateway keeps the node's North-South gateway in its desired state:
// layout "direct", in which the uplink keeps its addresses and an eBPF program
// on its ingress hands OVN's packets to the internal port of the gateway
// bridge, and another sends OVN's packets out.
//
// What should be is computed by pure functions (desired.go, ports.go,
// services.go, sockets.go) from what is; apply.go brings it about, in the order
// in which a node never black-holes its host: host addresses before programs,
// programs before flows, flows before the bridge mapping that lets OVN talk.
// Any change of a device, an address, the OVS database, the OpenFlow
// connection or the Services runs the whole of it again.
package gateway
