// Package bpf is the gateway demultiplexer in eBPF. Its programs decide for each packet at a node's
// uplink whether the host or OVN owns it. The package contains the programs and their maps, and
// loads and attaches them. It is the only importer of cilium/ebpf.
//
// A node has one NIC, the uplink. The host and OVN's gateway router share one IP and MAC address
// there. OVN has its own local ports, the SNAT range, so the local port identifies the owner of
// most packets. These decisions need no learned state that could be lost. A pod cannot take packets
// that belong to the host. Unknown packets go to the host.
//
// docs/verdicts.md lists the decisions, their order and their reasons. It is generated from package
// verdict. TestGateway_decidesCorpus and TestGateway_agreesWithModel hold the programs to that
// model in every layout.
//
// # Layouts
//
// The layout determines how a packet is handed over. Each layout has its own programs, which differ
// only in that, so no program checks the layout:
//
//	layout     hook            program                what it hands over
//	direct     uplink ingress  uplink_ingress         ovn: out of breth0, as if the host had sent it;
//	                                                  both: a copy there
//	           bridge ingress  bridge_ingress         out: to the uplink;
//	                                                  host: up, as if addressed to the node
//	bridged    uplink ingress  bridged_uplink_in      host: up by breth0, without the VLAN tag;
//	                                                  ovn: marked 0x6f76, to OVS; both: both
//	           uplink egress   bridged_uplink_out     out: passes; host: up by breth0;
//	                                                  packets from bridge egress pass uncounted
//	           bridge ingress  bridged_bridge_in      nothing: drops packets marked for OVN that a
//	                                                  bridge without flows has flooded
//	           bridge egress   bridged_bridge_out     out: to the uplink, with the VLAN tag;
//	                                                  ovn: marked 0x6f76, to OVS
//	dedicated  uplink ingress  dedicated_uplink_in    nothing: all packets pass to OVS, counted
//	           uplink egress   dedicated_uplink_out   nothing: packets that are not dropped pass
//
// A packet that passes reaches the next program on the hook. In bridged and dedicated, while an
// interface of the configuration is 0, every packet passes to OVS, whose flows carry the host's
// traffic; no_uplink drops in direct only. Host packets that OVS' flows send to the uplink have the
// mark 0x686f: they pass as host_out. A packet that a program redirects past OVS to the uplink of
// layout bridged has the mark 0x6873, or 0x7073 if it is a pod's, until the uplink's egress, where
// it gets its own mark back. Pods cannot set these marks, because the kernel clears the mark of a
// packet that leaves a network namespace.
//
// # Short path
//
// quick.h decides most of the traffic after one bounds check. Two bitmaps save it table lookups:
// special_ports contains the local ports of services, of seeded flows and of BFD; host_digest
// contains hashes of the host's addresses. A set bit sends the packet to the full path, and decides
// nothing.
//
// The programs look up sockets only on ports that SyncHostSockets or a Gate names:
//
//   - A connection of the host owns its port, also during setup and in TIME_WAIT.
//   - A UDP socket owns its port, and OVN must not send from that port.
//   - A listener owns packets other than SYN if they answer its SYN cookie.
//
// # State
//
// These are pinned under the pin directory and shared with the programs of earlier loads and other
// layouts:
//
//   - the maps counters, services, host_addrs, host_sockets, host_protos and takeover (seeded
//     flows)
//   - the learned maps ns (exchanges that OVN began) and frags
//   - with shortcuts: shortcuts, shortcut_epoch, shortcut_counts, short_pods, pod_received, slots, and
//     the links pod_ingress_<interface index>
//   - the links uplink_ingress, uplink_egress, bridge_ingress and bridge_egress, or, on kernels
//     without tcx (before 6.6), the clsact programs <hook>_clsact_<interface index>
//
// The configuration and the bitmaps belong to one load, and change over with its programs. The same
// holds for service_slots and service_counts, the packet counts of Service ports.
//
// # Nested pods
//
// nested.bpf.c is for a node that is a virtual machine with a port of a hypervisor's OVN as its
// NIC. The node then has no gateway. Each pod is a nested port, and its packets have the port's
// VLAN tag on the NIC. LoadNested attaches two programs:
//
//	hook                           program           direction, reason: what it does
//	nested_wire: NIC's ingress     nested_from_wire  rx  in: to the pod with that tag, without the tag
//	                                                     no_pod: drops a packet whose tag no pod has
//	                                                     foreign_vlan: passes a tag that is not of the
//	                                                     node's pool
//	nested_pod_<interface index>:  nested_from_pod   tx  out: to the NIC, with the pod's tag
//	ingress of the host's end                            host: passes a packet to one of the VM's
//	                                                     addresses
//	                                                     spoofed_vlan: drops a packet that the pod has
//	                                                     tagged
//	                                                     spoofed_source: drops a packet that would pass,
//	                                                     but is not from the pod's addresses
//	                                                     unknown_device: drops every packet of a pod
//	                                                     without an entry
//
// Packets without a tag, with tag 0 and with 802.1ad tags are the VM's. They pass uncounted. A TCP
// or UDP packet to the VM passes only if the VM has a socket for it. Otherwise it answers a packet
// that the VM sent to a load balancer, and goes out. Later fragments follow the first one. The
// programs know only the VM's IPv4 addresses.
//
// The maps nested_tags, nested_devices, nested_host, nested_frags and nested_counts, and the links
// or clsact programs of the hooks, are pinned. RemoveNested removes them.
//
// # Explaining
//
// explain.bpf.c contains the same rules again. OpenExplainer loads it over the tables of the
// attached programs. It finds tables without a pin by the programs' IDs. note.h records each
// lookup. Without the macro EXPLAIN it is empty, so the attached programs contain none of its
// instructions.
//
// # Monitoring
//
// monitor.bpf.c contains the rules a third time. OpenMonitor attaches it before the deciding
// programs while a monitor is open. It writes to a ring buffer and passes every packet.
//
// # Kernels
//
// The programs need Linux 5.15, apart from tcx, and from the number of verified instructions in
// bpf_prog_info (5.16), which a test reads. Tested kernels are 6.1, 6.12 and 6.18.
// TestGateway_complexity prints the verifier's cost.
package bpf
