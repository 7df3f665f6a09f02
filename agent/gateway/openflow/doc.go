// Package openflow is the gateway demultiplexer in OpenFlow: the flows of the
// gateway bridge, as text, from what is known of the node. It is pure.
//
// Flows is the whole demultiplexer, for the layout bridged and nodes whose
// kernel or hardware wants flows. Static is what stands beside the eBPF programs
// in each layout.
//
// # Where the verdicts differ from package verdict
//
// The tests hold the flows to the model, but for this:
//
//   - ICMP errors, and echo replies to the node's addresses, go to both: neither a
//     quoted packet nor an identifier can be matched.
//   - A socket of the host inside the SNAT range has a flow of its own, which who
//     knows the sockets keeps in Input. A listening TCP socket has its whole port, and
//     OVN may not send from there: there are no SYN cookies.
//   - Fragments to an address of the host, of a VIP or of a service are reassembled
//     in conntrack zone 64003 and then decided as a whole. What the datapath leaves
//     a fragment (it always does in userspace) goes to both. Elsewhere, and from OVN
//     and the host, a fragment is decided without its ports or ICMP type, and a later
//     one of IPv6 without its protocol, which counts as one with ports.
//   - What OVS parses otherwise: 802.1ad is as 802.1Q; the version in the IP header
//     is not looked at; any number of extension headers is read. An IP header with a
//     wrong length, or cut short, is none: to the host from the wire, dropped from OVN.
//     A transport header that is cut short has no ports.
//
// # Why it is cheap for the host
//
// What a packet costs in the datapath is the number of masks that its flow is
// found under, and each mask is the union of what the tables here had to look at.
// So the tables ask in the order of width: port and MAC, EtherType, destination
// address, protocol, and then the destination port. Of the port only the leading
// bits are looked at that tell it from the services' and the range's (a masked
// match, and OVS' tries). What is wider (source address and port, TCP flags, marks,
// conntrack) stands in tables that only packets to the SNAT range, fragments, and
// connections during a takeover come to. So all of a peer's connections to one
// port of the host share a datapath flow, and what the host sends is told by its
// destination's prefix alone.
//
// What is learned is at most 16384 flows, and takes effect when OVS has revised the
// datapath's flows, within half a second: the answer to the first GRE packet of a
// pod may go to the host if it is faster.
//
// # What counts
//
// Of the flows that a packet meets exactly one decides, and counts it: its number
// (Counts) is in its cookie. What has many flows, or does what was decided, has none.
//
// There is no conntrack but in zone 64003, which only reassembles fragments and
// commits nothing, and in the hairpin's 64001 and 64002.
package openflow
