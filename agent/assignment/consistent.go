package assignment

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// checkConsistent returns an error if network, the annotation of a pod, could harm the node, whose
// annotations are node. The pod's creator can write the annotation, and the agent may see that
// before the controller corrects it. The annotation must have
//
//   - at least one address, each in another subnet of the node, and none of the reserved ones,
//   - the gateways that follow from the addresses,
//   - a MAC address that neither the node nor, by derivation, another pod has (checkMAC).
func checkConsistent(network annotation.Pod, node map[string]string) error {
	subnets, err := annotation.ParseNodeSubnets(node)
	if err != nil {
		return fmt.Errorf("the node's subnets: %w", err)
	}

	var (
		used     []netip.Prefix
		gateways []netip.Addr
	)

	for _, a := range network.Addresses {
		subnet := a.Masked()
		if !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Masked() == subnet }) ||
			slices.Contains(used, subnet) {
			return fmt.Errorf("address %s is not in a subnet of the node %v", a, subnets)
		}

		router, port, broadcast := reservedAddresses(subnet)
		if a.Addr() == subnet.Addr() || a.Addr() == router || a.Addr() == port || a.Addr() == broadcast {
			return fmt.Errorf("address %s is reserved", a)
		}

		used = append(used, subnet)
		gateways = append(gateways, router)
	}

	if len(used) == 0 {
		return errors.New("no address")
	}

	if !slices.Equal(network.Gateways, gateways) {
		return fmt.Errorf("gateways %v differ from the node's router %v", network.Gateways, gateways)
	}

	return checkMAC(network, subnets, node)
}

// reservedAddresses returns the addresses of a node's subnet that no pod gets, besides the first:
// those of the router (.1) and the management port (.2), and IPv4's broadcast address. For IPv6,
// broadcast is the zero Addr.
func reservedAddresses(subnet netip.Prefix) (router, port, broadcast netip.Addr) {
	router = subnet.Addr().Next()
	if subnet.Addr().Is4() {
		b := subnet.Addr().As4()
		for i, m := range net.CIDRMask(subnet.Bits(), 32) {
			b[i] |= ^m
		}

		broadcast = netip.AddrFrom4(b)
	}

	return router, router.Next(), broadcast
}

// checkMAC returns an error for a MAC address that the node itself uses, or that is derived from
// another IP address than the pod's (annotation.DerivedMAC).
func checkMAC(network annotation.Pod, subnets []netip.Prefix, node map[string]string) error {
	if err := annotation.CheckMAC(network.MAC); err != nil {
		return fmt.Errorf("MAC address: %w", err)
	}

	var own []net.HardwareAddr

	for _, s := range subnets {
		router, port, _ := reservedAddresses(s.Masked())
		own = append(own, annotation.DerivedMAC(router), annotation.DerivedMAC(port))
	}

	// Absent or malformed addresses are not in use.
	if mac, err := annotation.ParseManagementMAC(node); err == nil {
		own = append(own, mac)
	}

	if gateway, err := annotation.ParseGateway(node); err == nil {
		if mac, err := net.ParseMAC(gateway.MAC); err == nil {
			own = append(own, mac)
		}
	}

	if slices.ContainsFunc(own, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, network.MAC) }) {
		return fmt.Errorf("MAC address %s is the node's own", network.MAC)
	}

	// All derived MAC addresses begin with the same two bytes, whatever the IP address. A MAC
	// address that the pod requests begins with others.
	derivedPrefix := annotation.DerivedMAC(subnets[0].Addr())[:2]

	isDerivedFrom := func(a netip.Prefix) bool { return bytes.Equal(annotation.DerivedMAC(a.Addr()), network.MAC) }
	if bytes.Equal(network.MAC[:2], derivedPrefix) && !slices.ContainsFunc(network.Addresses, isDerivedFrom) {
		return fmt.Errorf("MAC address %s is reserved for the IP address that it is derived from",
			network.MAC)
	}

	return nil
}
