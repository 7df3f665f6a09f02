// Package verdict has the terms of the gateway, and its specification. The terms are the keys and
// kinds of the tables, the reasons, the layouts and the configuration. Package bpf encodes them for
// the eBPF programs, and package openflow renders them as flows.
//
// The specification is a model of the demultiplexer, which finds the owner of each packet: the host
// or OVN. It decides packets that arrive at a node's uplink, packets that OVN sends and, where the
// host sends through the gateway bridge, packets of the host. Each decision has a reason.
//
// It is a model, not a data path. Input is a frame, the configuration, the tables and the time.
// Output is a reason, the verdict that it implies, and the changes to the tables. The model does no
// I/O and reads no clock. Every backend is tested against it, packet by packet. The table of cases
// in docs/verdicts.md is generated from it.
//
// Begin with Model.Decide in model.go:
//
//   - wire.go, ovn.go and host.go have the rules, one file for each origin of packets.
//   - reason.go lists the reasons. Each rule returns one of them.
//   - packet.go parses a frame into the fields that the rules use.
//   - tables.go has the state: its keys and values, and how a decision changes it.
//   - shortcut.go has the connections of pods that bypass OVS. They never change a verdict.
//
// The model does not depend on the layout, nor on how a backend executes a verdict. It includes
// known weaknesses of the data path, so that changing them is a decision: length fields of packets
// are not checked, and early fragments go to both sides.
//
// Package corpus has the packets for the tests of the backends.
package verdict
