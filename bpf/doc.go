// Package bpf is the gateway demultiplexer: the eBPF programs that say, packet
// by packet, what at a node's uplink is the host's and what is OVN's, their
// maps, and how both get into the kernel and stay there. It is the only
// importer of cilium/ebpf.
//
// A node has one NIC, the uplink, and one address that the host and OVN's
// gateway router share, MAC and all. OVN has local ports of its own, the SNAT
// range, so the owner of most packets is read off their local port: nothing is
// learned, and nothing can be lost. Unknown means the host.
//
// What becomes of a packet is specified by package agent/gateway/verdict, and
// TestModel holds the programs to it. In short:
//
// # Order at the uplink
//
// The program uplink_ingress. The first line that fits decides; host passes the
// packet on, ovn redirects it to the bridge, both does both.
//
//	packet                                                    verdict  reason
//	tagged                                                    host     vlan
//	to another unicast MAC                                    host     other_mac
//	neither ARP nor IP; not well formed                       host     not_ip, malformed
//	ARP reply                                                 both     arp_reply
//	ARP request for an address of the host                    host     arp_request
//	ARP announcement                                          both     arp_gratuitous
//	other ARP                                                 host     arp_other
//	neighbour or router advertisement                         both     nd_advert, router_advert
//	neighbour solicitation for an address of the host         host     nd_solicit
//	the same for the router's own link-local address          ovn      nd_solicit_ovn
//	other neighbour discovery                                 host     nd_other
//	Geneve to the tunnel address of the userspace datapath    ovn      geneve_ovn
//	Geneve to an address of the host                          host     geneve
//	to a broadcast or multicast MAC                           host     multicast
//	to the router's own link-local address                    ovn      ovn_address
//	later fragment whose first went to OVN                    ovn      fragment_ovn
//	other later fragment to an address of the host            host     fragment
//	to an address, protocol and port of a service             ovn      service
//	ICMP error about a packet that these rules give to OVN    ovn      icmp_error_ovn
//	any other ICMP error                                      host     icmp_error_host
//	to no address of the host                                 host     not_ours
//	SNAT range: TCP SYN                                       host     snat_syn
//	SNAT range: a socket of the host owns it                  host     host_socket
//	SNAT range: everything else                               ovn      snat_port
//	ICMP echo reply that OVN asked for                        ovn      icmp_echo_reply_ns
//	any other echo reply; echo request                        host     icmp_echo_reply, icmp_echo
//	other protocol that OVN uses with this peer               ovn      proto_ns
//	everything else                                           host     default
//
// IPv6 to an IPv4-mapped address is not well formed, either. Tagged packets of the
// host's bulk traffic count as default, geneve or icmp_echo: the short way does
// not look at the tag, the verdict is the same.
//
// A first fragment is decided as a whole packet is; if it goes to OVN, the
// later ones follow for 30 s. An echo reply follows its request for 60 s.
// The kernel is asked for a socket only on ports that SyncHostSockets names: a
// listener does not own what is no SYN; a connection, also one being set up or
// in TIME_WAIT, does, and so does any UDP socket.
//
// # Order for what OVN sends
//
// The program bridge_ingress.
//
//	packet                                                    verdict  reason
//	Geneve or ARP from the tunnel address                     out      encap_out
//	from another MAC than the node's                          drop     bad_mac
//	ARP, neighbour discovery                                  out      neighbour_out
//	to a service CIDR                                         drop     svc_leak
//	from a pod CIDR                                           drop     unsnated
//	echo request or protocol without ports, from the node     out      out_learned
//	everything else                                           out      out
//
// The CIDRs are looked at also in packets that are otherwise not well formed.
// While an interface of the configuration is 0, what would be handed over
// counts as pass_unconfigured and goes to the host, or as no_uplink and is
// dropped.
//
// # State
//
// Pinned under the pin directory, shared with the programs of an earlier load:
// the maps counters, ns (what OVN asked for), frags, services, host_addrs and
// host_sockets, and the links uplink_ingress and bridge_ingress, or where the
// kernel has no tcx (before 6.6) the clsact programs
// <hook>_clsact_<interface index>. The configuration and the digest of service
// ports belong to one load, and change over with its programs.
package bpf
