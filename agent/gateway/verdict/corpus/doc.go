// Package corpus is the packets that every backend of the gateway is tested
// with: named cases, each with the reason that a person says decides it, and a
// generator of random nodes and frames that the model decides. It is for the
// tests of bpf and of agent/gateway/openflow; it does no I/O.
//
// A Node is what a test sets up: a configuration and tables, as data. Ages
// stand in for times, so that a test can put them on the clock of its backend.
// Cases come sorted by node. No case changes a table such that another case of
// the same node is decided otherwise, so a node need be set up once.
package corpus
