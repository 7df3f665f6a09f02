// Package openflow is the gateway demultiplexer in OpenFlow. It computes the flows of the gateway
// bridge, as text, from the state of the node. It is pure.
//
// Flows is the whole demultiplexer. It serves layout bridged, on nodes whose kernel lacks eBPF or
// whose hardware offloads flows. Static is the set of flows that accompanies the eBPF programs in
// each layout.
//
// # Where to start
//
// flow.go has the numbers of the tables and the syntax of flows. input.go has the input, and
// demultiplexer, which calls the method of each table. wire.go shows the path of a packet from the
// wire. Its first tables are in internal.go, and its last ones in ours.go. ovn.go and host.go have
// the tables of packets from OVN and from the host. Each method that fills a table lists its
// priorities.
//
// planner.go finds the flows that change from one input to the next. reason.go numbers the
// counters.
//
// # Differences from package verdict
//
// The tests hold the flows to the model, with these exceptions:
//
//   - ICMP errors, and echo replies to the node's addresses, go to both sides. Flows cannot match a
//     quoted packet or an identifier.
//   - A host socket inside the SNAT range has its own flow, so the caller must keep Input.Sockets
//     up to date. A listening TCP socket owns its whole port, and OVN must not send from there,
//     because flows cannot check SYN cookies.
//   - Fragments to an address of the host, of a VIP or of a Service are reassembled in conntrack
//     zone 64003 and then decided as a whole. Packets that the datapath leaves as fragments (always
//     in userspace) go to both sides.
//   - All other fragments, and those from OVN and the host, are decided without ports or ICMP type.
//     Later IPv6 fragments are decided without their protocol and count as a protocol with ports.
//   - OVS parses some headers differently. 802.1ad is treated like 802.1Q. The version in the IP
//     header is ignored. Any number of extension headers is read.
//   - A packet with a wrong IP header length, or a truncated IP header, is not IP. From the wire it
//     goes to the host, and from OVN it is dropped. A truncated transport header has no ports.
//
// # Cost for the host's traffic
//
// The datapath cost of a packet is the number of masks that are tried before its flow is found.
// Each mask is the union of the fields that the tables here had to match. So the tables match in
// the order of width:
//
//  1. port and MAC
//  2. EtherType
//  3. destination address
//  4. protocol
//  5. destination port
//
// Of the port only those leading bits are matched that separate it from the ports of Services and
// of the range (masked matches, and OVS' tries). Wider fields (source address and port, TCP flags,
// marks, conntrack) are matched in tables that only three kinds of packets reach: packets to the
// SNAT range, fragments, and connections during a takeover. As a result, all connections of a peer
// to one port of the host share a datapath flow. The host's own packets are classified by
// destination prefix alone.
//
// At most 16384 flows are learned. A learned flow takes effect when OVS has revalidated the
// datapath, within half a second. The reply to a pod's first GRE packet may go to the host if it
// arrives sooner.
//
// # Counters
//
// Of the flows that a packet matches, exactly one decides and counts it. The cookie contains the
// number of its reason (see Counts). A flow without a number does not count: many such flows share
// one reason, or they only execute an earlier decision.
//
// # Conntrack
//
// The flows use three zones: 64003, which reassembles fragments and commits nothing, and 64001 and
// 64002 for the hairpin. Only Handover writes to another gateway's zone, 64000.
package openflow
