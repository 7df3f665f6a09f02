package verdict

//go:generate go run ./reasons

// Verdict is the receiver of a packet.
type Verdict uint8

const (
	Host Verdict = iota // the node's stack, or another program on the hook
	OVN                 // the gateway bridge, and thereby the gateway router
	Both                // a copy for each
	Out                 // leaves through the uplink
	Drop                // only the counter records it
)

var verdictNames = [...]string{Host: "host", OVN: "ovn", Both: "both", Out: "out", Drop: "drop"}

func (v Verdict) String() string { return verdictNames[v] }

// Reason is the rule that decided.
type Reason uint8

// The reasons in the order of evaluation, by direction. This is the only list of reasons: go
// generate makes from it the names and classes (reason_table.go), the C enum and its classes
// (bpf/reason.h), and so the names of the counters. A comment has the form
//
//	name, class: packets
//
// where class says where a packet comes from and where it goes. The number of a reason is its place
// in the pinned counters, which outlive the agent. It never changes: a new reason gets the next
// number, wherever it stands in the list.
const (
	// nested_tag, wire dropped: priority tag (VLAN 0) with a second tag behind it
	NestedTag Reason = 47
	// spoofed_source, wire dropped: IP or ARP from an internal address; neighbour advertisement for
	// an internal address
	SpoofedSource Reason = 48
	// cluster_destination, wire dropped: IP to an internal address; exceptions are addresses of the
	// host and some packets for VIPs
	ClusterDestination Reason = 49
	// vlan, wire to host: of another network: with a foreign VLAN tag, or untagged on a node with a
	// gateway VLAN
	VLAN Reason = 10
	// other_mac, wire to host: to another unicast MAC
	OtherMAC Reason = 8
	// not_ip, wire to host: neither ARP nor IP
	NotIP Reason = 11
	// malformed, wire to host: ARP, IP or neighbour solicitation that is not well formed; IPv6 to an
	// IPv4-mapped address
	Malformed Reason = 12
	// arp_reply, wire to both: ARP reply
	ARPReply Reason = 39
	// arp_vip, wire to host: ARP request for a VIP
	ARPVIP Reason = 2
	// arp_request, wire to host: ARP request for an address of the host
	ARPRequest Reason = 3
	// arp_request_ovn, wire to OVN: ARP request for an address of OVN alone
	ARPRequestOVN Reason = 33
	// arp_gratuitous, wire to both: other ARP request whose sender and target address are equal (an
	// announcement)
	ARPGratuitous Reason = 40
	// arp_other, wire to host: other ARP
	ARPOther Reason = 4
	// nd_advert, wire to both: neighbour advertisement
	NDAdvert Reason = 41
	// router_advert, wire to both: router advertisement
	RouterAdvert Reason = 42
	// nd_vip, wire to host: neighbour solicitation for a VIP
	NDVIP Reason = 5
	// nd_solicit, wire to host: neighbour solicitation for an address of the host
	NDSolicit Reason = 6
	// nd_solicit_ovn, wire to OVN: neighbour solicitation for an address of OVN alone
	NDSolicitOVN Reason = 34
	// nd_other, wire to host: other neighbour discovery
	NDOther Reason = 7
	// geneve_ovn, wire to OVN: Geneve to the tunnel address of the userspace datapath
	GeneveOVN Reason = 25
	// geneve, wire to host: Geneve to an address of the host
	Geneve Reason = 1
	// multicast, wire to host: other IP to a broadcast or multicast MAC
	Multicast Reason = 9
	// pod_address, wire to OVN: to a pod subnet of this node that is routable without NAT, except
	// addresses of the host
	PodAddress Reason = 35
	// ovn_address, wire to OVN: to an address of OVN alone
	OVNAddress Reason = 36
	// fragment_ovn, wire to OVN: later fragment: the first one went to OVN within the last 30 s
	FragmentOVN Reason = 32
	// fragment, wire to host: later fragment: the first one went to the host within the last 30 s
	Fragment Reason = 13
	// fragment_early, wire to both: other later fragment to an address of the host or a VIP
	FragmentEarly Reason = 43
	// host_connection, wire to host: shared gateway mode: to a frontend that OVN serves at an address
	// of the host, but the packet belongs to a connection of a host socket
	HostConnection Reason = 18
	// service, wire to OVN: shared gateway mode: to a frontend that OVN serves
	Service Reason = 26
	// service_cached, wire to OVN: to a frontend that OVN serves, of a connection with a valid
	// shortcut: rewritten and sent to the pod, past OVS
	ServiceCached Reason = 38
	// service_host, wire to host: shared gateway mode: to a frontend that a host socket serves
	// (externalTrafficPolicy Local, endpoint on this host's network)
	ServiceHosted Reason = 14
	// service_local, wire to host: local gateway mode: to a frontend of any Service
	ServiceLocal Reason = 15
	// icmp_error_ovn, wire to OVN: ICMP error about a packet that OVN sent
	ICMPErrorOVN Reason = 29
	// icmp_error_echo, wire to both: ICMP error about an echo request, if OVN sent a request with
	// this identifier to this peer within the last 60 s
	ICMPErrorEcho Reason = 45
	// icmp_vip, wire to OVN: shared gateway mode: ICMP fragmentation needed or packet too big, to a
	// VIP, unless it quotes a packet from a frontend of service_host
	ICMPVIP Reason = 30
	// icmp_error_host, wire to host: other ICMP error
	ICMPErrorHost Reason = 21
	// not_ours, wire to host: to an address that is not the host's
	NotOurs Reason = 23
	// snat_syn, wire to host: to the SNAT range: TCP SYN
	SNATSyn Reason = 16
	// host_socket, wire to host: to the SNAT range: a host socket owns the packet
	HostSocket Reason = 17
	// snat_port, wire to OVN: to the SNAT range: everything else
	SNATPort Reason = 27
	// snat_cached, wire to OVN: to the SNAT range, of a connection with a valid shortcut: rewritten
	// and sent to the pod, past OVS
	SNATCached Reason = 37
	// takeover, wire to OVN: to another port of the node, of a connection that OVN had before a
	// takeover; not a TCP SYN
	Takeover Reason = 28
	// icmp_echo_reply_ns, wire to both: ICMP echo reply, if OVN sent a request with this identifier
	// to this peer within the last 60 s
	ICMPEchoReplyNS Reason = 44
	// icmp_echo_reply, wire to host: other ICMP echo reply
	ICMPEchoReply Reason = 20
	// icmp_echo, wire to host: ICMP echo request
	ICMPEcho Reason = 19
	// proto_host, wire to host: protocol without ports that the host uses with this peer, or for
	// which it has a raw socket
	ProtoHost Reason = 22
	// proto_ns, wire to OVN: protocol without ports that OVN sent to this peer within the last 600 s
	ProtoNS Reason = 31
	// bfd, wire to both: BFD to an address of the host, if BFD is enabled
	BFD Reason = 46
	// default, wire to host: everything else
	Default Reason = 0
	// pass_unconfigured, wire to host: would go to OVN by another rule, but the uplink or the gateway
	// bridge is missing or not configured
	PassUnconfigured Reason = 24

	// encap_out, OVN out: Geneve or ARP from the tunnel address of the userspace datapath
	EncapOut Reason = 54
	// pod_tunnel, OVN dropped: other Geneve, except to a network of --allow-pod-tunnels; addresses of
	// nodes are never excepted
	PodTunnel Reason = 62
	// pmtud, OVN dropped: ICMP fragmentation needed or packet too big, to another node
	PMTUD Reason = 56
	// hairpin, OVN to host: IP to an address of the host, or from a service CIDR
	Hairpin Reason = 64
	// bad_mac, OVN dropped: from a MAC other than the node's
	BadMAC Reason = 57
	// bfd_out, OVN out: BFD, if BFD is enabled
	BFDOut Reason = 55
	// garp_guard, OVN dropped: while ovn-controller is not connected to the southbound database: ARP
	// announcement or unsolicited neighbour advertisement, for an address that is not the host's
	GARPGuard Reason = 58
	// neighbour_out, OVN out: other ARP and neighbour discovery, except from a former address of the
	// node
	NeighbourOut Reason = 53
	// svc_leak, OVN dropped: IP to a service CIDR or a masquerade network
	SvcLeak Reason = 59
	// unsnated, OVN dropped: IP from a pod CIDR that needs NAT; IP, ARP or neighbour discovery from a
	// former address of the node
	Unsnated Reason = 60
	// oversized, OVN to host: local gateway mode: IP packet longer than the MTU
	Oversized Reason = 65
	// local_out, OVN to host: local gateway mode: TCP, UDP or SCTP from the node
	LocalOut Reason = 66
	// host_owned, OVN dropped: from the node: UDP from the SNAT range, or a protocol without ports,
	// if the host would receive the replies
	HostOwned Reason = 61
	// out_learned, OVN out: from the node: ICMP echo request, or a protocol without ports
	OutLearned Reason = 51
	// out, OVN out: everything else
	OutPlain Reason = 50
	// no_uplink, OVN dropped: would be sent or dropped by another rule, but the uplink or the gateway
	// bridge is missing or not configured
	NoUplink Reason = 63

	// host_ovn, host to OVN: IP to a service CIDR or a masquerade network, except Geneve
	HostOVN Reason = 68
	// host_out, host out: everything else
	HostOut Reason = 67

	// out_cached, pod out: with a valid shortcut: rewritten and sent to the uplink, past OVS
	OutCached Reason = 52
)

// Rule is one line of the table of cases.
type Rule struct {
	Reason    Reason
	Name      string // of the counter
	Verdict   Verdict
	Direction Direction
	Packet    string // description of the packets
}

// Rule returns the line of the reason in the table of cases.
func (r Reason) Rule() Rule {
	rule := rules[r]
	rule.Reason = r

	return rule
}

// Rules returns the table of cases in the order of evaluation.
func Rules() []Rule {
	list := make([]Rule, len(order))
	for i, r := range order {
		list[i] = r.Rule()
	}

	return list
}

func (r Reason) String() string { return rules[r].Name }

// Direction returns the origin of the packets.
func (r Reason) Direction() Direction { return rules[r].Direction }

// Verdict returns the verdict of the reason.
func (r Reason) Verdict() Verdict { return rules[r].Verdict }
