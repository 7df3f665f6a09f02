// Package agent is a node's part of the network: the settings of its Open
// vSwitch, the North-South gateway, the management port, the interfaces of its
// pods, and what the controller must know of the node.
//
// Run starts them in an order in which the host is reachable at every moment:
// settings, programs, flows, bridge mapping, management port, CNI socket, and
// last the CNI configuration, which tells the container runtime that the node
// is ready. Every part is a level-triggered loop; what fails is tried again,
// and /readyz says what is missing. At the end of Run everything stays as it
// is; Cleanup takes it away.
package agent
