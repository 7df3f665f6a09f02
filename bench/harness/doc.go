// Command harness runs inside the test VM and measures one variant of a node's network:
//
//	harness -variant ebpf
//
// The VM has one CPU whose nanoseconds are instructions (test/vm/run -i). So the time of an
// operation is its number of instructions.
//
// The network has three namespaces: node (the host under test, with its uplink eth0 and what the
// variant adds), pod (a pod of this node), and outside (a machine on the uplink's wire, which is
// also the far end of the overlay). One locked thread holds all sockets, so that every send runs
// the whole path inline, down to the receiving socket. The harness counts batches of operations,
// which rotate over 16 flows, and the median of the batches is the result. Neighbours are static,
// the datapath's flows are deleted before every test, and warm-up batches are not counted.
//
// The harness also verifies that a variant is what it claims. It checks its parts before the tests.
// After each test, it checks how much the counters have increased where the variant handles the
// test's packets. If a check fails, it writes no result.
//
// To read it, begin with measurement.run in main.go. The other files are:
//
//   - measure.go: a test, its batches, and what it expects of counters
//   - ops.go, tcp.go, socket.go: the operations, on raw system calls
//   - netns.go: the three namespaces, and addresses
//   - ovs.go, ovn.go: Open vSwitch, with a few flows in the place of OVN's, or with real OVN:
//     northd and two chassis. The second chassis is the machine outside.
//   - linux.go, helper.go, ebpf.go, bridged.go, openflow.go, ovnk.go, overlay.go: the variants.
//     Each is a type with the methods of variant, and has a line in newVariant.
//   - counter_amd64.s: the instruction counter, and marks for bench/stacks (profile.go)
//
// The rows go to standard output as bench.Row, progress to standard error.
package main
