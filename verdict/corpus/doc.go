// Package corpus contains the packets with which every backend of the gateway is tested. There are
// named cases, each with its expected reason, and a generator of random nodes and frames, for which
// the model decides. It serves the tests of bpf and of agent/gateway/openflow, and does no I/O.
//
// A Node is the configuration and tables that a test sets up, as data. It contains ages instead of
// times, so that a test can convert them to its backend's clock. Cases are sorted by node. No case
// changes a table in a way that affects another case of the same node, so a test sets up each node
// only once.
package corpus
