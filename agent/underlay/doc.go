// Package underlay is the agent of a node in underlay mode: the node is a virtual machine, and its
// pods are nested ports of the machine's virtual NIC. The controller publishes the node's pool of
// ports as a ConfigMap. The agent gives each pod a port of the pool without asking another program.
//
// Run in underlay.go builds and runs the parts. Two loops keep the node up to date: syncNIC
// (nic.go) finds the NIC and attaches the programs of package nested, and syncPool takes over the
// ConfigMap into ports (ports.go), which wraps package pool. source.go serves the CNI server and
// package podnet from ports.
package underlay
