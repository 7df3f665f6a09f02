// Package status tells whether a node's gateway is right, from what is there:
// devices, pins, flows, sysctls, OVSDB, ovn-controller, and the agent if it answers.
// So it works when the agent is dead; all it needs is the Record that an agent left when
// it started. Look reads, Judge is pure.
package status
