// Package agent is the network of one node: the settings of its Open vSwitch, the North-South
// gateway, the management port, the interfaces of its pods, and the node's annotations for the
// controller.
//
// Run first writes the settings in Open vSwitch. Then all parts run at the same time, each as a
// level-triggered loop that retries failures. /readyz lists what is missing. The gateway keeps the
// host reachable by the order of its own steps (package gateway). The CNI configuration is written
// last, when nothing is missing, as it tells the container runtime that the node is ready. The
// node's state stays after Run; Cleanup removes it.
//
// Read agent.go first: Run starts the agent, build connects the parts, and runParts lists them. The
// other files:
//
//	config.go, settings.go     the configuration, and the settings that the agent detects
//	chassis.go                 the node's settings in Open vSwitch, and its chassis in OVN
//	annotate.go                annotations of the Node: the node's state, and the controller's subnets
//	watch.go                   ovn-controller's connection, and the host's addresses
//	pods.go, announce.go       interfaces of pods, and the CNI configuration
//	local.go, responder.go     local gateway mode, and BFD for nodes without a gateway
//	environment.go, faults.go  faults of the node that the agent cannot repair
//	fallback.go, refusals.go   Events about a kernel without eBPF, and about parts that are not served
//	http.go, metrics.go        /readyz, the metrics and the status page
//	record.go                  the record for "ovnkube status"
//	api.go                     the agent's own connections to the API server
//	cleanup.go                 the removal of the agent from the node
package agent
