package annotation

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// MaxHostAddresses is the number of addresses that the annotations of a Node can give to its host,
// in addition to those in the Node's status.
const MaxHostAddresses = 64

// Trust decides which addresses in the annotations of a Node belong to its host. Agents write these
// annotations, and a compromised agent could claim an address of a Service, of another host or of
// the outside. An agent cannot write the Node's status. Controller and agents use the same Trust,
// because they must agree.
type Trust struct {
	Networks []netip.Prefix // whose addresses any Node may claim (--host-networks), masked
}

// TrustAll returns a Trust that accepts every address, for clusters without hostile nodes: those of
// tests and benchmarks.
func TrustAll() Trust {
	return Trust{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
}

// Split divides addresses that a Node claims for its host. Those in the Node's status are trusted,
// and the first MaxHostAddresses of those in Networks. Of the others, it returns the first
// MaxHostAddresses as claimed, which only the Node itself may rely on. excess is the number of
// addresses in Networks that are not trusted because there are too many.
func (t Trust) Split(n *corev1.Node, addresses []netip.Prefix) (trusted, claimed []netip.Prefix, excess int) {
	inNetworks := 0

	for _, p := range addresses {
		switch a := p.Addr().Unmap().WithZone(""); {
		case hasStatusAddress(n, a):
			trusted = append(trusted, p)
		case !cluster.Contains(t.Networks, a):
			if len(claimed) < MaxHostAddresses {
				claimed = append(claimed, p)
			}
		case inNetworks < MaxHostAddresses:
			trusted = append(trusted, p)
			inNetworks++
		default:
			excess++
		}
	}

	return trusted, claimed, excess
}

// TunnelAddress returns the address of the Node's tunnels, or false if the annotation is not set,
// malformed, or not trusted.
func (t Trust) TunnelAddress(n *corev1.Node) (netip.Addr, bool) {
	a, ok := ParseTunnelAddress(n.Annotations)

	return a, ok && (hasStatusAddress(n, a) || cluster.Contains(t.Networks, a))
}

// HostAddresses returns the addresses of the Node's host, sorted: the trusted ones of host-cidrs,
// of the gateway and of the tunnels, those of the Node's status, and the management port's address
// in each pod subnet. It ignores malformed annotations, and loopback and link-local addresses,
// which several hosts may have.
func (t Trust) HostAddresses(n *corev1.Node) []netip.Addr {
	var out []netip.Addr

	add := func(a netip.Addr) {
		if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() {
			out = append(out, a)
		}
	}

	// Values that are missing or malformed are zero.
	hostCIDRs, _ := ParseHostCIDRs(n.Annotations)
	gateway, _ := ParseGateway(n.Annotations)

	for _, claims := range [][]netip.Prefix{hostCIDRs, gateway.Addresses} {
		trusted, _, _ := t.Split(n, claims)
		for _, p := range trusted {
			add(p.Addr())
		}
	}

	subnets, _ := ParseNodeSubnets(n.Annotations) // only the controller writes these
	for _, s := range subnets {
		add(ManagementAddress(s).Addr())
	}

	if a, ok := t.TunnelAddress(n); ok {
		add(a)
	}

	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil { // an address of type Hostname is a name
			add(ip)
		}
	}

	slices.SortFunc(out, netip.Addr.Compare)

	return slices.Compact(out)
}

// ManagementAddress returns the management port's address in a node's subnet: the second after the
// network address.
func ManagementAddress(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(subnet.Masked().Addr().Next().Next(), subnet.Bits())
}

// hasStatusAddress reports whether the Node's status has the address.
func hasStatusAddress(n *corev1.Node, a netip.Addr) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(s corev1.NodeAddress) bool {
		ip, err := netip.ParseAddr(s.Address)
		return err == nil && ip.Unmap() == a
	})
}

// ParseTunnelAddress returns the address of the node's tunnels, or false if the annotation is not
// set or malformed.
func ParseTunnelAddress(annotations map[string]string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(annotations[TunnelAddress])
	return a.Unmap(), err == nil
}
