// Package pool decides which Neutron port a pod of an underlay node gets.
//
// The controller makes the ports of a node ahead and publishes them in the node's ConfigMap. The
// free ports are those of the ConfigMap without the ports that pods have. The records of package
// podnet are the durable truth about the ports that pods have, and the agent restores its Pool from
// them when it starts. The package also defines the file that keeps the rest of the agent's state,
// and the table that `ovnkube underlay pool` prints.
//
// A port is identified by its VLAN tag. A port that the controller repairs keeps its tag, MAC and
// addresses but gets a new UUID, which then replaces the old one under a running pod.
//
// The package is pure. It reads no clock, does no I/O, takes no lock, and its output is sorted.
package pool
