// Package masquerade has the addresses by which a node's host and its gateway router communicate
// on the gateway bridge, where both have the node's own address. They are the same as in
// ovn-kubernetes. Packets with these addresses never leave the node.
package masquerade

import "net/netip"

// Addresses are the masquerade addresses of one family.
type Addresses struct {
	Subnet  netip.Prefix
	OVN     netip.Addr // source of packets from OVN, as the host sees them
	Host    netip.Addr // source of packets from the host, as OVN sees them; the bridge has this address
	NextHop netip.Addr // of both sides' routes to the other; no host has this address
}

// MAC is the link-layer address of the next hop on both sides. Flows on the bridge replace it by
// the node's.
const MAC = "0a:58:a9:fe:a9:04"

// Zones of conntrack in which flows on the bridge translate the hairpin.
const (
	HostZone = 64001 // the host's address ↔ Addresses.Host
	OVNZone  = 64002 // a client's address ↔ Addresses.OVN
)

// Of returns the addresses of IPv4 or IPv6.
func Of(is4 bool) Addresses {
	if is4 {
		return Addresses{
			Subnet:  netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 169, 0}), 29),
			OVN:     netip.AddrFrom4([4]byte{169, 254, 169, 1}),
			Host:    netip.AddrFrom4([4]byte{169, 254, 169, 2}),
			NextHop: netip.AddrFrom4([4]byte{169, 254, 169, 4}),
		}
	}

	six := func(last byte) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x69, 15: last}) }

	return Addresses{Subnet: netip.PrefixFrom(six(0), 125), OVN: six(1), Host: six(2), NextHop: six(4)}
}
