// Package bfd answers Bidirectional Forwarding Detection (RFC 5880, asynchronous mode; RFC 5881,
// UDP port 3784) at the management port of a gateway node. With it, OVN on nodes without a gateway
// detects whether this gateway is usable.
//
// Two BFD sessions of OVN cannot monitor each other: each drops packets without its discriminator,
// so neither can learn the other's. OVN does accept a peer that follows the RFC. This
// implementation has the passive role: it sends only to peers that it has received from. Its
// discriminators derive from the two addresses, so an agent that restarts in time continues the
// sessions of the previous one.
//
// Responder has the sockets. session.go is the state machine, which does no I/O, and packet.go the
// wire format.
package bfd
