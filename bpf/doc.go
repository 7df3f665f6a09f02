// Package bpf is the gateway demultiplexer: the eBPF programs that say, packet
// by packet, what at a node's uplink is the host's and what is OVN's, their
// maps, and how both get into the kernel and stay there.
package bpf
