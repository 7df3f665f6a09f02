package verdict

// Verdict is who gets a packet.
type Verdict uint8

const (
	Host Verdict = iota // the stack of the node, or whoever else is on the hook
	OVN                 // the gateway bridge, and so the gateway router
	Both                // a copy each
	Out                 // OVN's packet leaves by the uplink
	Drop                // OVN's packet leaves no trace but its counter
)

var verdictNames = [...]string{Host: "host", OVN: "ovn", Both: "both", Out: "out", Drop: "drop"}

func (v Verdict) String() string { return verdictNames[v] }

// Reason is the rule that decided. Its name is that of the counter.
type Reason uint8

// In the order in which the rules are asked.
const (
	VLAN Reason = iota
	OtherMAC
	NotIP
	Malformed
	ARPReply
	ARPRequest
	ARPGratuitous
	ARPOther
	NDAdvert
	RouterAdvert
	NDSolicit
	NDSolicitOVN
	NDOther
	GeneveOVN
	Geneve
	Multicast
	OVNAddress
	FragmentOVN
	Fragment
	Service
	ICMPErrorOVN
	ICMPErrorHost
	NotOurs
	SNATSyn
	HostSocket
	SNATPort
	ICMPEchoReplyNS
	ICMPEchoReply
	ICMPEcho
	ProtoNS
	Default
	PassUnconfigured // instead of OVN and Both

	EncapOut
	BadMAC
	NeighbourOut
	SvcLeak
	Unsnated
	OutLearned
	OutPlain
	NoUplink // instead of all others

	reasonCount
)

// Rule is one line of the table of cases.
type Rule struct {
	Reason    Reason
	Name      string
	Verdict   Verdict
	Direction Direction
	Packet    string // which packets it is about
}

// rules has the table of cases, by reason.
var rules = [reasonCount]Rule{
	VLAN:             {Name: "vlan", Verdict: Host, Packet: "tagged"},
	OtherMAC:         {Name: "other_mac", Verdict: Host, Packet: "to another unicast MAC"},
	NotIP:            {Name: "not_ip", Verdict: Host, Packet: "neither ARP nor IP"},
	Malformed:        {Name: "malformed", Verdict: Host, Packet: "ARP, IP or neighbour solicitation that is not well formed, or IPv6 to an IPv4-mapped address"},
	ARPReply:         {Name: "arp_reply", Verdict: Both, Packet: "ARP reply"},
	ARPRequest:       {Name: "arp_request", Verdict: Host, Packet: "ARP request for an address of the host"},
	ARPGratuitous:    {Name: "arp_gratuitous", Verdict: Both, Packet: "ARP announcement: sender and target are the same"},
	ARPOther:         {Name: "arp_other", Verdict: Host, Packet: "other ARP"},
	NDAdvert:         {Name: "nd_advert", Verdict: Both, Packet: "neighbour advertisement"},
	RouterAdvert:     {Name: "router_advert", Verdict: Both, Packet: "router advertisement"},
	NDSolicit:        {Name: "nd_solicit", Verdict: Host, Packet: "neighbour solicitation for an address of the host"},
	NDSolicitOVN:     {Name: "nd_solicit_ovn", Verdict: OVN, Packet: "neighbour solicitation for the router's own link-local address"},
	NDOther:          {Name: "nd_other", Verdict: Host, Packet: "other neighbour discovery"},
	GeneveOVN:        {Name: "geneve_ovn", Verdict: OVN, Packet: "Geneve to the tunnel address of the userspace datapath"},
	Geneve:           {Name: "geneve", Verdict: Host, Packet: "Geneve to an address of the host"},
	Multicast:        {Name: "multicast", Verdict: Host, Packet: "to a broadcast or multicast MAC"},
	OVNAddress:       {Name: "ovn_address", Verdict: OVN, Packet: "to the router's own link-local address"},
	FragmentOVN:      {Name: "fragment_ovn", Verdict: OVN, Packet: "later fragment whose first went to OVN within 30 s"},
	Fragment:         {Name: "fragment", Verdict: Host, Packet: "other later fragment to an address of the host"},
	Service:          {Name: "service", Verdict: OVN, Packet: "to an address, protocol and port of a service"},
	ICMPErrorOVN:     {Name: "icmp_error_ovn", Verdict: OVN, Packet: "ICMP error about a packet whose sender these rules say is OVN"},
	ICMPErrorHost:    {Name: "icmp_error_host", Verdict: Host, Packet: "other ICMP error"},
	NotOurs:          {Name: "not_ours", Verdict: Host, Packet: "to no address of the host"},
	SNATSyn:          {Name: "snat_syn", Verdict: Host, Packet: "to the SNAT range: TCP SYN"},
	HostSocket:       {Name: "host_socket", Verdict: Host, Packet: "to the SNAT range: a socket of the host owns it"},
	SNATPort:         {Name: "snat_port", Verdict: OVN, Packet: "to the SNAT range: everything else"},
	ICMPEchoReplyNS:  {Name: "icmp_echo_reply_ns", Verdict: OVN, Packet: "ICMP echo reply that OVN asked for within 60 s"},
	ICMPEchoReply:    {Name: "icmp_echo_reply", Verdict: Host, Packet: "other ICMP echo reply"},
	ICMPEcho:         {Name: "icmp_echo", Verdict: Host, Packet: "ICMP echo request"},
	ProtoNS:          {Name: "proto_ns", Verdict: OVN, Packet: "protocol without ports that OVN uses with this peer"},
	Default:          {Name: "default", Verdict: Host, Packet: "everything else"},
	PassUnconfigured: {Name: "pass_unconfigured", Verdict: Host, Packet: "OVN's or both's by the lines above, and an interface is missing"},

	EncapOut:     {Name: "encap_out", Verdict: Out, Direction: FromOVN, Packet: "Geneve or ARP from the tunnel address of the userspace datapath"},
	BadMAC:       {Name: "bad_mac", Verdict: Drop, Direction: FromOVN, Packet: "from another MAC than the node's"},
	NeighbourOut: {Name: "neighbour_out", Verdict: Out, Direction: FromOVN, Packet: "ARP, neighbour discovery"},
	SvcLeak:      {Name: "svc_leak", Verdict: Drop, Direction: FromOVN, Packet: "to a service CIDR"},
	Unsnated:     {Name: "unsnated", Verdict: Drop, Direction: FromOVN, Packet: "from a pod CIDR"},
	OutLearned:   {Name: "out_learned", Verdict: Out, Direction: FromOVN, Packet: "echo request or protocol without ports, from the node"},
	OutPlain:     {Name: "out", Verdict: Out, Direction: FromOVN, Packet: "everything else"},
	NoUplink:     {Name: "no_uplink", Verdict: Drop, Direction: FromOVN, Packet: "any, and an interface is missing"},
}

// Rules returns the table of cases, in the order in which they are asked.
func Rules() []Rule {
	list := make([]Rule, reasonCount)
	for i := range list {
		list[i] = rules[i]
		list[i].Reason = Reason(i)
	}
	return list
}

func (r Reason) String() string { return rules[r].Name }

// Verdict is what the reason implies.
func (r Reason) Verdict() Verdict { return rules[r].Verdict }
