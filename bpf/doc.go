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
// # Where to begin
//
// The programs are in gateway.bpf.c, one line each. They find the reason of a packet (verdict.h for
// packets from the wire, out.h for packets from OVN and the host), and act.h executes its verdict.
// types.h and maps.h have the configuration and the tables. In Go, Open (load.go) loads the
// programs, AttachUplink and AttachBridge (attach.go) attach them, and the Sync methods write the
// tables. The Go side of other programs has their name: gate.go loads gate.bpf.c.
//
// # Layouts
//
// The layout determines how a packet is handed over after its decision. Each layout has its own
// programs, which differ only in that, so no program checks the layout. act.h has these functions.
//
// Layout direct: the host owns the uplink, and OVN's packets arrive through breth0.
//
//	program               hook             what it does, by verdict
//	uplink_ingress        uplink, ingress  host: passes the packet to the host
//	                                       ovn: redirects it out of breth0, as if from the host
//	                                       both: passes it, and sends a copy out of breth0
//	bridge_ingress        breth0, ingress  out: redirects the packet to the uplink
//	                                       host: passes it, as if addressed to the node's MAC
//
// Layout bridged: OVS owns the uplink, and breth0 has the host's address.
//
//	bridged_uplink_in     uplink, ingress  host: redirects the packet up through breth0, without the
//	                                       gateway network's VLAN tag
//	                                       ovn: marks it MARK_OVN and passes it to OVS
//	                                       both: does both
//	bridged_uplink_out    uplink, egress   out: passes the packet
//	                                       host: redirects it up through breth0
//	bridged_bridge_out    breth0, egress   out: tags the packet, and redirects it to the uplink
//	                                       ovn: marks it MARK_OVN and passes it to OVS
//	bridged_bridge_in     breth0, ingress  drops packets with MARK_OVN, which a bridge without flows
//	                                       floods to the host; passes all others
//
// Layout dedicated: only OVN uses the uplink. The programs count and drop, but redirect nothing.
//
//	dedicated_uplink_in   uplink, ingress  passes every packet to OVS, unless the verdict is drop
//	dedicated_uplink_out  uplink, egress   passes every packet, unless the verdict is drop
//
// In every layout, the verdict drop drops the packet. At the uplink's ingress it has the reasons
// nested_tag, spoofed_source and cluster_destination. A packet that passes reaches the next program
// on the hook.
//
// The programs are not connected while the configuration lacks an interface (its index is 0). From
// the wire, they still drop packets with the three reasons above. Layout direct gives all other
// packets from the wire to the host, and drops packets from OVN that would leave the node
// (no_uplink). Layouts bridged and dedicated pass all others, so OVS' flows decide them.
//
// # Marks
//
// In layout bridged, packets have these marks between programs and OVS' flows:
//
//	MARK_OVN        0x6f76  for OVN: a flow of the bridge sends the packet to OVN
//	MARK_HOST       0x686f  from the host, set by a flow while no program is attached to breth0's
//	                        egress: bridged_uplink_out counts the packet as host_out
//	MARK_HOST_SENT  0x6873  from the host, redirected past OVS to the uplink
//	MARK_POD_SENT   0x7073  from a pod with a shortcut, redirected past OVS to the uplink
//
// Another program has already decided and counted packets with the last two marks. So
// bridged_uplink_out restores their own mark, and passes them uncounted. Pods cannot set a mark,
// because the kernel clears the mark of a packet that leaves a network namespace.
//
// # Short path
//
// quick.h decides most of the traffic after one bounds check. Bitmaps save it table lookups:
//
//	special_ports         local ports of Services, of connections in takeover, and of BFD
//	host_digest           hashes of the addresses in host_addrs
//	internal4, internal6  the cluster's own networks: their first 16 bits, or hashes of the first 48
//
// If a bit is clear, the table has no entry. If a bit is set, the table may have an entry, and must
// be searched.
//
// The programs look up sockets only on ports that SyncHostSockets or a Gate names:
//
//   - A connection of the host owns its port, also during setup and in TIME_WAIT.
//   - A UDP socket owns its port, and OVN must not send from that port.
//   - A listener owns packets other than SYN if they answer its SYN cookie.
//
// # State
//
// Maps with LIBBPF_PIN_BY_NAME in their definition are pinned under the pin directory. The programs
// of earlier loads and of other layouts share them:
//
//	maps.h          counters; services, host_addrs, networks and takeover, from Go; ns and frags,
//	                which the programs learn
//	host.h          host_sockets, host_protos
//	gate.bpf.c      gate_recent
//	lookup.h        lookup_targets
//	sock.h          the maps sock_*
//	short.h, slot.h with shortcuts: shortcuts, shortcut_epoch, shortcut_counts, short_pods,
//	                pod_received, slots
//	nested.h        the maps nested_*
//
// The links are pinned, too: uplink_ingress, uplink_egress, bridge_ingress, bridge_egress, and
// pod_ingress_<interface index> for shortcuts. On kernels without tcx (before 6.6), the clsact
// programs <hook>_clsact_<interface index> are pinned instead. The links of gate.bpf.c and
// sock.bpf.c have the names of their programs.
//
// Global variables, such as the configuration and the bitmaps, and maps without a pin belong to one
// load. They change over with its programs.
//
// # Sockets of the host
//
// Three files are about the host's own sockets. All work in the host's network namespace only:
//
//   - gate.bpf.c records the ports on which a socket binds, and the protocols of raw sockets, at
//     the hooks of the root cgroup. Gate clears the ports that no socket has any more.
//   - sock.bpf.c translates sockets that connect or send to a Service, from the frontend to a
//     backend, at hooks of the same cgroup. Sock writes its tables.
//   - lookup.h assigns packets with the reason service_host to the socket that listens on the
//     endpoint's port (externalTrafficPolicy=Local). It is a part of the programs at the uplink.
//     lookup.bpf.c defines its table for Lookup, and a program for tests.
//
// # Nested pods
//
// nested.bpf.c is for a node that is a virtual machine with a port of a hypervisor's OVN as its
// NIC. The node then has no gateway. Each pod is a nested port, and its packets have the port's
// VLAN tag on the NIC. LoadNested attaches two programs. Their counters have the directions rx and
// tx.
//
// nested_from_wire is at the NIC's ingress (hook nested_wire) and decides packets with a tag:
//
//	in            to the pod with that tag, without the tag
//	no_pod        dropped: the tag is of the node's pool, but no pod has it
//	foreign_vlan  passes: the tag is not of the node's pool
//
// nested_from_pod is at the ingress of the host's end of each pod's device (hook
// nested_pod_<interface index>), and decides packets of the pod:
//
//	out             to the NIC, with the pod's tag
//	host            passes, because it is to one of the VM's addresses
//	spoofed_vlan    dropped: the pod has tagged it
//	spoofed_source  dropped: it would pass, but is not from the pod's addresses
//	unknown_device  dropped: the device has no entry
//
// Packets without a tag, with tag 0 and with 802.1ad tags are the VM's. They pass uncounted. A TCP
// or UDP packet to the VM passes only if the VM has a socket for it. Otherwise it answers a packet
// that the VM sent to a load balancer, and goes out. Later fragments follow the first one. The
// programs know only the VM's IPv4 addresses.
//
// RemoveNested removes the pinned maps nested_*, and the pinned links or clsact programs of the
// hooks.
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
