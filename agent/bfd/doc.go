// Package bfd answers Bidirectional Forwarding Detection (RFC 5880, asynchronous
// mode; RFC 5881, UDP port 3784) at the management port of a gateway node, so that
// OVN on nodes without a gateway sees whether this one can be used.
//
// OVN's own BFD cannot watch another of its kind: it drops what does not name
// its discriminator, which each would have to learn from the other first. It does
// meet a peer that follows the RFC. This one is passive: it speaks to who has
// spoken. Its discriminators are made from the two addresses, so that an agent
// that was restarted in time goes on where the one before left off.
package bfd
