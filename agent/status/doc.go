// Package status checks a node's gateway from its actual state: devices, pins, flows, sysctls,
// OVSDB, ovn-controller, and the agent if it answers. It works without a running agent; it only
// needs the Record that the agent wrote at its start.
//
// Look (look.go) reads the state as Facts. Judge (judge.go) is pure, and makes a Report of them,
// with Checks of the node's parts. Report.Print prints it for "ovnkube status".
package status
