// Package status checks a node's gateway from its actual state: devices, pins, flows, sysctls,
// OVSDB, ovn-controller, and the agent if it answers. It works without a running agent; it only
// needs the Record that the agent wrote at its start. Look reads, Judge is pure.
package status
