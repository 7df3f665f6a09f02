// Package masquerade has the addresses by which a node's host and its gateway router talk on the
// gateway bridge, where both have the node's own address. They are ovn-kubernetes's, and never
// leave the node.
package masquerade

import "net/netip"

// Addresses are one family's.
type Addresses struct {
	Subnet  netip.Prefix
	OVN     netip.Addr // what the host sees of packets from OVN
	Host    netip.Addr // what OVN sees of the host; an address of the bridge on the host
	NextHop netip.Addr // of either side's routes to the other; assigned to no host
}

// MAC is the link-layer address that both sides have for the next
// hop. Flows on the bridge put the node's there.
const MAC = "0a:58:a9:fe:a9:04"

// Zones of conntrack in which flows on the bridge translate the hairpin.
const (
	HostZone = 64001 // the host's address ↔ Addresses.Host
	OVNZone  = 64002 // a client's address ↔ Addresses.OVN
)

// Of returns the addresses of the family.
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
