// Package e2e drives a cluster in the lab along every path a packet can take,
// and holds the gateways' counters against what each path must have moved.
//
// A Path is one of the ways: from, to, who serves, which class of traffic it
// is on each node. Run makes real TCP and UDP requests of both families over
// it and returns what it saw. The demo prints that; the tests add faults.
package e2e
