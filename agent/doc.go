// Package agent is the network of one node: the settings of its Open vSwitch, the North-South
// gateway, the management port, the interfaces of its pods, and the node's annotations for the
// controller.
//
// Run starts them in an order that keeps the host reachable at all times: settings, programs,
// flows, bridge mapping, management port, CNI socket. The CNI configuration is last, as it tells
// the container runtime that the node is ready. Every part is a level-triggered loop. Failures are
// retried, and /readyz lists what is missing. The node's state stays after Run; Cleanup removes it.
package agent
