// Package bpf is the gateway demultiplexer: the eBPF programs that say, packet
// by packet, what at a node's uplink is the host's and what is OVN's, their
// maps, and how both get into the kernel and stay there. It is the only
// importer of cilium/ebpf.
//
// A node has one NIC, the uplink, and one address that the host and OVN's gateway router share, MAC
// and all. OVN has local ports of its own, the SNAT range, so the owner of most packets is read off
// their local port: nothing is learned, and nothing can be lost. What the host exchanges no pod can
// take. Unknown means the host.
//
// What becomes of a packet, in which order and for which reason, is
// docs/verdicts.md, made from package agent/gateway/verdict. TestCorpus and
// TestModel hold the programs to that model in every layout.
//
// # Layouts
//
// What it takes to hand a packet over depends on the layout. Each has programs
// of its own, which differ in nothing else, so none asks for the layout:
//
//	layout     hook            program                what it hands over
//	direct     uplink ingress  uplink_ingress         ovn: out of breth0, as if the host had sent it; both: a copy there
//	           bridge ingress  bridge_ingress         out: to the uplink; host: up, as if addressed to the node
//	bridged    uplink ingress  bridged_uplink_in      host: up by breth0, without the VLAN tag; ovn: marked 0x6f76, to OVS; both: both
//	           uplink egress   bridged_uplink_out     out: passes; host: up by breth0; what bridge egress sent passes uncounted
//	           bridge ingress  bridged_bridge_in      nothing: what is marked for OVN, and flooded by a bridge without flows, is dropped
//	           bridge egress   bridged_bridge_out     out: to the uplink, with the VLAN tag; ovn: marked 0x6f76, to OVS
//	dedicated  uplink ingress  dedicated_uplink_in    nothing: all passes to OVS, counted
//	           uplink egress   dedicated_uplink_out   nothing: what is not dropped passes
//
// Passing lets the next program on the hook run. In bridged and dedicated, while
// an interface of the configuration is 0, everything passes to OVS, whose flows
// carry the host; no_uplink drops in direct alone. What OVS' flows send to the
// uplink for the host has the mark 0x686f: it passes as host_out.
//
// # Short ways
//
// The bulk of the traffic is decided in quick.h, from one bounds check. Two
// bitmaps keep it from asking tables in vain: special_ports has the local ports
// of services, of seeded flows and of BFD; host_digest has the host's addresses by a hash.
// A bit that is set costs the long way, and decides nothing.
//
// A socket is asked for only on ports that SyncHostSockets or a Gate names: a connection of the
// host's owns its port, also one being set up or in TIME_WAIT, and so does any UDP socket, by whose
// port OVN may not send; a listener owns what is no SYN if it answers its SYN cookie.
//
// # State
//
// Pinned under the pin directory, shared with the programs of an earlier load
// and of other layouts: the maps counters, services, host_addrs, host_sockets,
// host_protos, takeover (seeded flows), and what is learned: ns (what OVN asked
// for) and frags. The links
// uplink_ingress, uplink_egress, bridge_ingress and bridge_egress, or where the
// kernel has no tcx (before 6.6) the clsact programs
// <hook>_clsact_<interface index>. The configuration and the bitmaps belong to
// one load, and change over with its programs; so do service_slots and
// service_counts, the packets of each Service's port.
//
// # Explaining
//
// explain.bpf.c has the same rules once more, and OpenExplainer loads it over the
// tables of the programs that are attached, also those without a pin, found by
// the programs' ids. note.h writes down what was asked; where EXPLAIN is not
// defined it is nothing, so that what runs has no instruction of it.
//
// # Monitoring
//
// monitor.bpf.c has the rules a third time, and OpenMonitor puts it before the
// programs that are attached while somebody looks. It writes to a ring buffer, and passes.
//
// # Kernels
//
// Nothing is used that 5.15 does not have, but for tcx, and for
// bpf_prog_info's count of verified instructions (5.16) in a test. Tested are
// 6.1, 6.12 and 6.18; TestComplexity prints what the verifier has to look at.
package bpf
