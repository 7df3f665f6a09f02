package verdict

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

// Reason is the rule that decided. Its name is the counter's name.
type Reason uint8

// In the order of evaluation.
const (
	NestedTag Reason = iota
	SpoofedSource
	ClusterDestination // instead of Host and Both, where nothing listens
	VLAN
	OtherMAC
	NotIP
	Malformed
	ARPReply
	ARPVIP
	ARPRequest
	ARPRequestOVN
	ARPGratuitous
	ARPOther
	NDAdvert
	RouterAdvert
	NDVIP
	NDSolicit
	NDSolicitOVN
	NDOther
	GeneveOVN
	Geneve
	Multicast
	PodAddress
	OVNAddress
	FragmentOVN
	Fragment
	FragmentEarly
	HostConnection
	Service
	ServiceCached
	ServiceHosted
	ServiceLocal
	ICMPErrorOVN
	ICMPErrorEcho
	ICMPVIP
	ICMPErrorHost
	NotOurs
	SNATSyn
	HostSocket
	SNATPort
	SNATCached
	Takeover
	ICMPEchoReplyNS
	ICMPEchoReply
	ICMPEcho
	ProtoHost
	ProtoNS
	BFD
	Default
	PassUnconfigured // instead of OVN and Both

	EncapOut
	PodTunnel
	PMTUD
	Hairpin
	BadMAC
	BFDOut
	GARPGuard
	NeighbourOut
	SvcLeak
	Unsnated
	Oversized
	LocalOut
	HostOwned
	OutLearned
	OutPlain
	NoUplink // instead of Out and Drop

	HostOVN
	HostOut

	OutCached

	reasonCount
)

// Rule is one line of the table of cases.
type Rule struct {
	Reason    Reason
	Name      string
	Verdict   Verdict
	Direction Direction
	Packet    string // description of the packets
}

// rules is the table of cases, by reason.
var rules = [reasonCount]Rule{
	NestedTag:          {Name: "nested_tag", Verdict: Drop, Packet: "priority tag (VLAN 0) with a second tag behind it"},
	SpoofedSource:      {Name: "spoofed_source", Verdict: Drop, Packet: "IP or ARP from an internal address; neighbour advertisement for an internal address"},
	ClusterDestination: {Name: "cluster_destination", Verdict: Drop, Packet: "IP to an internal address; exceptions are addresses of the host and some packets for VIPs"},
	VLAN:               {Name: "vlan", Verdict: Host, Packet: "of another network: with a foreign VLAN tag, or untagged on a node with a gateway VLAN"},
	OtherMAC:           {Name: "other_mac", Verdict: Host, Packet: "to another unicast MAC"},
	NotIP:              {Name: "not_ip", Verdict: Host, Packet: "neither ARP nor IP"},
	Malformed:          {Name: "malformed", Verdict: Host, Packet: "ARP, IP or neighbour solicitation that is not well formed; IPv6 to an IPv4-mapped address"},
	ARPReply:           {Name: "arp_reply", Verdict: Both, Packet: "ARP reply"},
	ARPVIP:             {Name: "arp_vip", Verdict: Host, Packet: "ARP request for a VIP"},
	ARPRequest:         {Name: "arp_request", Verdict: Host, Packet: "ARP request for an address of the host"},
	ARPRequestOVN:      {Name: "arp_request_ovn", Verdict: OVN, Packet: "ARP request for an address of OVN alone"},
	ARPGratuitous:      {Name: "arp_gratuitous", Verdict: Both, Packet: "other ARP request whose sender and target address are equal (an announcement)"},
	ARPOther:           {Name: "arp_other", Verdict: Host, Packet: "other ARP"},
	NDAdvert:           {Name: "nd_advert", Verdict: Both, Packet: "neighbour advertisement"},
	RouterAdvert:       {Name: "router_advert", Verdict: Both, Packet: "router advertisement"},
	NDVIP:              {Name: "nd_vip", Verdict: Host, Packet: "neighbour solicitation for a VIP"},
	NDSolicit:          {Name: "nd_solicit", Verdict: Host, Packet: "neighbour solicitation for an address of the host"},
	NDSolicitOVN:       {Name: "nd_solicit_ovn", Verdict: OVN, Packet: "neighbour solicitation for an address of OVN alone"},
	NDOther:            {Name: "nd_other", Verdict: Host, Packet: "other neighbour discovery"},
	GeneveOVN:          {Name: "geneve_ovn", Verdict: OVN, Packet: "Geneve to the tunnel address of the userspace datapath"},
	Geneve:             {Name: "geneve", Verdict: Host, Packet: "Geneve to an address of the host"},
	Multicast:          {Name: "multicast", Verdict: Host, Packet: "other IP to a broadcast or multicast MAC"},
	PodAddress:         {Name: "pod_address", Verdict: OVN, Packet: "to a pod subnet of this node that is routable without NAT, except addresses of the host"},
	OVNAddress:         {Name: "ovn_address", Verdict: OVN, Packet: "to an address of OVN alone"},
	FragmentOVN:        {Name: "fragment_ovn", Verdict: OVN, Packet: "later fragment: the first one went to OVN within the last 30 s"},
	Fragment:           {Name: "fragment", Verdict: Host, Packet: "later fragment: the first one went to the host within the last 30 s"},
	FragmentEarly:      {Name: "fragment_early", Verdict: Both, Packet: "other later fragment to an address of the host or a VIP"},
	HostConnection:     {Name: "host_connection", Verdict: Host, Packet: "shared gateway mode: to a frontend that OVN serves at an address of the host, but the packet belongs to a connection of a host socket"},
	Service:            {Name: "service", Verdict: OVN, Packet: "shared gateway mode: to a frontend that OVN serves"},
	ServiceCached:      {Name: "service_cached", Verdict: OVN, Packet: "to a frontend that OVN serves, of a connection with a valid shortcut: rewritten and sent to the pod, past OVS"},
	ServiceHosted:      {Name: "service_host", Verdict: Host, Packet: "shared gateway mode: to a frontend that a host socket serves (externalTrafficPolicy Local, endpoint on this host's network)"},
	ServiceLocal:       {Name: "service_local", Verdict: Host, Packet: "local gateway mode: to a frontend of any Service"},
	ICMPErrorOVN:       {Name: "icmp_error_ovn", Verdict: OVN, Packet: "ICMP error about a packet that OVN sent"},
	ICMPErrorEcho:      {Name: "icmp_error_echo", Verdict: Both, Packet: "ICMP error about an echo request, if OVN sent a request with this identifier to this peer within the last 60 s"},
	ICMPVIP:            {Name: "icmp_vip", Verdict: OVN, Packet: "shared gateway mode: ICMP fragmentation needed or packet too big, to a VIP, unless it quotes a packet from a frontend of service_host"},
	ICMPErrorHost:      {Name: "icmp_error_host", Verdict: Host, Packet: "other ICMP error"},
	NotOurs:            {Name: "not_ours", Verdict: Host, Packet: "to an address that is not the host's"},
	SNATSyn:            {Name: "snat_syn", Verdict: Host, Packet: "to the SNAT range: TCP SYN"},
	HostSocket:         {Name: "host_socket", Verdict: Host, Packet: "to the SNAT range: a host socket owns the packet"},
	SNATPort:           {Name: "snat_port", Verdict: OVN, Packet: "to the SNAT range: everything else"},
	SNATCached:         {Name: "snat_cached", Verdict: OVN, Packet: "to the SNAT range, of a connection with a valid shortcut: rewritten and sent to the pod, past OVS"},
	Takeover:           {Name: "takeover", Verdict: OVN, Packet: "to another port of the node, of a connection that OVN had before a takeover; not a TCP SYN"},
	ICMPEchoReplyNS:    {Name: "icmp_echo_reply_ns", Verdict: Both, Packet: "ICMP echo reply, if OVN sent a request with this identifier to this peer within the last 60 s"},
	ICMPEchoReply:      {Name: "icmp_echo_reply", Verdict: Host, Packet: "other ICMP echo reply"},
	ICMPEcho:           {Name: "icmp_echo", Verdict: Host, Packet: "ICMP echo request"},
	ProtoHost:          {Name: "proto_host", Verdict: Host, Packet: "protocol without ports that the host uses with this peer, or for which it has a raw socket"},
	ProtoNS:            {Name: "proto_ns", Verdict: OVN, Packet: "protocol without ports that OVN sent to this peer within the last 600 s"},
	BFD:                {Name: "bfd", Verdict: Both, Packet: "BFD to an address of the host, if BFD is enabled"},
	Default:            {Name: "default", Verdict: Host, Packet: "everything else"},
	PassUnconfigured:   {Name: "pass_unconfigured", Verdict: Host, Packet: "would go to OVN by another rule, but the uplink or the gateway bridge is missing or not configured"},

	EncapOut:     {Name: "encap_out", Verdict: Out, Direction: FromOVN, Packet: "Geneve or ARP from the tunnel address of the userspace datapath"},
	PodTunnel:    {Name: "pod_tunnel", Verdict: Drop, Direction: FromOVN, Packet: "other Geneve, except to a network of --allow-pod-tunnels; addresses of nodes are never excepted"},
	PMTUD:        {Name: "pmtud", Verdict: Drop, Direction: FromOVN, Packet: "ICMP fragmentation needed or packet too big, to another node"},
	Hairpin:      {Name: "hairpin", Verdict: Host, Direction: FromOVN, Packet: "IP to an address of the host, or from a service CIDR"},
	BadMAC:       {Name: "bad_mac", Verdict: Drop, Direction: FromOVN, Packet: "from a MAC other than the node's"},
	BFDOut:       {Name: "bfd_out", Verdict: Out, Direction: FromOVN, Packet: "BFD, if BFD is enabled"},
	GARPGuard:    {Name: "garp_guard", Verdict: Drop, Direction: FromOVN, Packet: "while ovn-controller is not connected to the southbound database: ARP announcement or unsolicited neighbour advertisement, for an address that is not the host's"},
	NeighbourOut: {Name: "neighbour_out", Verdict: Out, Direction: FromOVN, Packet: "other ARP and neighbour discovery, except from a former address of the node"},
	SvcLeak:      {Name: "svc_leak", Verdict: Drop, Direction: FromOVN, Packet: "IP to a service CIDR or a masquerade network"},
	Unsnated:     {Name: "unsnated", Verdict: Drop, Direction: FromOVN, Packet: "IP from a pod CIDR that needs NAT; IP, ARP or neighbour discovery from a former address of the node"},
	Oversized:    {Name: "oversized", Verdict: Host, Direction: FromOVN, Packet: "local gateway mode: IP packet longer than the MTU"},
	LocalOut:     {Name: "local_out", Verdict: Host, Direction: FromOVN, Packet: "local gateway mode: TCP, UDP or SCTP from the node"},
	HostOwned:    {Name: "host_owned", Verdict: Drop, Direction: FromOVN, Packet: "from the node: UDP from the SNAT range, or a protocol without ports, if the host would receive the replies"},
	OutLearned:   {Name: "out_learned", Verdict: Out, Direction: FromOVN, Packet: "from the node: ICMP echo request, or a protocol without ports"},
	OutPlain:     {Name: "out", Verdict: Out, Direction: FromOVN, Packet: "everything else"},
	NoUplink:     {Name: "no_uplink", Verdict: Drop, Direction: FromOVN, Packet: "would be sent or dropped by another rule, but the uplink or the gateway bridge is missing or not configured"},

	HostOVN: {Name: "host_ovn", Verdict: OVN, Direction: FromHost, Packet: "IP to a service CIDR or a masquerade network, except Geneve"},
	HostOut: {Name: "host_out", Verdict: Out, Direction: FromHost, Packet: "everything else"},

	OutCached: {Name: "out_cached", Verdict: Out, Direction: FromPod, Packet: "with a valid shortcut: rewritten and sent to the uplink, past OVS"},
}

// Rules returns the table of cases in the order of evaluation.
func Rules() []Rule {
	list := make([]Rule, reasonCount)
	for i := range list {
		list[i] = rules[i]
		list[i].Reason = Reason(i)
	}

	return list
}

func (r Reason) String() string { return rules[r].Name }

// Direction returns the origin of the packets.
func (r Reason) Direction() Direction { return rules[r].Direction }

// Verdict returns the verdict of the reason.
func (r Reason) Verdict() Verdict { return rules[r].Verdict }
