// Command harness runs inside the test VM, on one CPU whose nanoseconds are
// instructions (test/vm/run -i), and measures one variant of a node's network:
//
//	harness -variant ebpf
//
// It builds the network out of three network namespaces: node (the host under test, with its uplink
// eth0, and what the variant puts beside it), pod (a pod of this node) and outside (a machine on
// the uplink's wire, which is also the far end of the overlay). One locked thread holds all
// sockets, so that every send runs the whole path inline, down to the receiving socket; it counts a
// batch of operations over 16 flows at a time, and the median of the batches is the result.
// Neighbours are static, the datapath's flows are dropped before every test, and warm-up batches
// come first.
//
// The harness verifies each variant: it checks its parts before the tests, and after each test the
// increase of its counters, at the place where the variant handles the test's packets. Otherwise it
// reports no result.
//
// A variant is a type with setup, watch and traits, and a line in newVariant (main.go). One whose ovs
// is onOVN has real OVN behind breth0's patch port (ovn.go): northd and two chassis, of which the
// machine outside is one.
//
// The rows go to standard output as bench.Row, progress to standard error.
package main
