package ipam

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// checkRequest returns an error for a requested MAC address that the pod cannot have. A MAC address
// that is derived from an IP address may only be requested together with this address, which must
// be in the node's first subnet.
func (a *Allocator) checkRequest(pod Pod, node string, r annotation.Request, subnets []netip.Prefix) error {
	if r.MAC == nil {
		return nil
	}

	inFirstSubnet := slices.DeleteFunc(slices.Clone(r.Addresses),
		func(addr netip.Addr) bool { return !subnets[0].Contains(addr) })

	return a.checkMAC(pod, node, subnets, r.MAC, inFirstSubnet...)
}

// holdMAC allocates the first MAC address that the pod may have: one of the candidates, the one
// derived from its first address, or one made from its UID. The last ones are needed because the
// MAC addresses derived from two IPv6 addresses may be equal. The pod must have addresses. Nil
// candidates are ignored.
func (a *Allocator) holdMAC(
	pod Pod,
	node string,
	subnets []netip.Prefix,
	candidates ...net.HardwareAddr,
) error {
	var addresses []netip.Addr
	for _, held := range a.pods.Held(pod) {
		addresses = append(addresses, held.Addr())
	}

	derived := annotation.DerivedMAC(addresses[0])
	for _, mac := range slices.Concat(candidates, []net.HardwareAddr{derived}, macsFromUID(pod.UID)) {
		if mac == nil || a.checkMAC(pod, node, subnets, mac, addresses...) != nil {
			continue
		}

		if addresses[0].Is4() && bytes.Equal(mac, derived) {
			mac = nil // HoldMAC need not record it: no two IPv4 addresses have the same derived MAC
		}

		return a.pods.HoldMAC(pod, subnets[0], mac)
	}

	return fmt.Errorf("allocate MAC address for pod %s: %w", pod.Name, ErrExhausted)
}

// macsFromUID returns locally administered MAC addresses, always the same for a UID. Several are
// enough to find a free one, because each has 40 bits of a hash.
func macsFromUID(uid string) []net.HardwareAddr {
	out := make([]net.HardwareAddr, 4)
	for i := range out {
		sum := sha256.Sum256(fmt.Append(nil, uid, i))
		out[i] = append(net.HardwareAddr{0x02}, sum[:5]...)
	}

	return out
}

// checkMAC returns an error unless the pod may have the MAC address together with the IP addresses.
// It must be a unicast address, and neither the node's own nor another pod's. A MAC address of the
// form of annotation.DerivedMAC must be derived from one of the IP addresses, because it may be
// needed for another IP address otherwise.
func (a *Allocator) checkMAC(
	pod Pod,
	node string,
	subnets []netip.Prefix,
	mac net.HardwareAddr,
	addresses ...netip.Addr,
) error {
	if err := annotation.CheckMAC(mac); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}

	isDerived := slices.ContainsFunc(addresses,
		func(addr netip.Addr) bool { return bytes.Equal(annotation.DerivedMAC(addr), mac) })
	isReserved := hasDerivedForm(mac) && !isDerived

	if isReserved || slices.Contains(a.macs[node], mac.String()) {
		return fmt.Errorf("%w: MAC address %s is the node's own, or kept for the address that it is made from",
			ErrInvalid, mac)
	}

	return a.pods.CheckMAC(pod, subnets[0], mac)
}

// hasDerivedForm reports whether the MAC address begins like those of annotation.DerivedMAC. All of
// these begin with the same two bytes.
func hasDerivedForm(mac net.HardwareAddr) bool {
	const prefixBytes = 2

	example := annotation.DerivedMAC(netip.IPv4Unspecified())

	return bytes.Equal(mac[:prefixBytes], example[:prefixBytes])
}

// nodeMACs returns the MAC addresses of the node's own ports: the router's, the management port's,
// and the uplink's, which the gateway router shares.
func nodeMACs(n *corev1.Node, subnets []netip.Prefix) []string {
	var out []string
	for _, s := range subnets {
		out = append(out, annotation.DerivedMAC(plan.RouterAddress(s).Addr()).String(),
			annotation.DerivedMAC(plan.ManagementAddress(s).Addr()).String())
	}

	// An address that is absent or malformed is not in use.
	if mac, err := annotation.ParseManagementMAC(n.Annotations); err == nil {
		out = append(out, mac.String())
	}

	if gateway, err := annotation.ParseGateway(n.Annotations); err == nil {
		if mac, err := net.ParseMAC(gateway.MAC); err == nil {
			out = append(out, mac.String())
		}
	}

	return out
}
