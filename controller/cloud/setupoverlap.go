package cloud

import (
	"fmt"
	"net/netip"
)

// addresses are the addresses of a network, for a comparison with others.
type addresses struct {
	what   string // the network, for messages
	prefix netip.Prefix
	pool   string // ID of the subnet pool that they are from, or that has them
	remedy string // if they overlap others, for messages
}

// checkOverlaps reports networks that have addresses in common. It compares the addresses of pods
// with those of Services, of the VMs' network, and of the other subnets in which the router has an
// interface. It also compares Services with VMs. Subnets that were taken from the pods' subnet
// pool, such as those of nodes' pools, are part of it, and do not overlap it.
func (s Setup) checkOverlaps(b *builder, seen SetupObservation, st setupState) {
	var others []addresses

	services := addresses{remedy: "if the cluster has other addresses of Services, give them by " +
		"--k8s-service-cidrs"}
	for _, p := range s.ServiceCIDRs {
		services.what, services.prefix = fmt.Sprintf("the service CIDR %s", p), p
		others = append(others, services)
	}

	for _, n := range seen.Subnets {
		switch {
		case st.vms.ID != "" && n.Network == st.vms.ID:
			vms := addresses{
				what:   fmt.Sprintf("subnet %s of the VMs' network %s", n.Prefix, st.vms.label()),
				prefix: n.Prefix, pool: n.SubnetPool,
			}
			for _, o := range others[:len(s.ServiceCIDRs)] {
				b.checkOverlap(o, vms)
			}

			others = append(others, vms)
		case st.router.ID != "" && b.hasInterface(n, st.router.ID):
			others = append(others, addresses{
				what: fmt.Sprintf("subnet %s (%s) of router %s", n.Prefix, n.ID,
					st.router.label()),
				prefix: n.Prefix, pool: n.SubnetPool,
			})
		}
	}

	pods := podAddresses(s.ipv4Pool(), st.subnetPool)

	pods = append(pods, podAddresses(s.ipv6Pool(), st.subnetPool6)...)
	for _, pods := range pods {
		for _, o := range others {
			b.checkOverlap(pods, o)
		}
	}
}

// podAddresses returns the addresses of a subnet pool, or those wanted for a new one.
func podAddresses(w wantedPool, p SubnetPool) []addresses {
	var out []addresses
	for _, prefix := range p.Prefixes {
		out = append(out, addresses{
			what:   fmt.Sprintf("%s of subnet pool %s", prefix, p.label()),
			prefix: prefix, pool: p.ID, remedy: "give another " + w.flag + " or " + w.prefixFlag,
		})
	}

	if p.ID == "" && w.id == "" && w.prefix.IsValid() {
		out = append(out, addresses{
			what: fmt.Sprintf("%s %s", w.prefixFlag, w.prefix), prefix: w.prefix,
			remedy: "give another " + w.prefixFlag,
		})
	}

	return out
}

// checkOverlap reports if x overlaps y, and they are not of the same subnet pool.
func (b *builder) checkOverlap(x, y addresses) {
	if x.prefix.Overlaps(y.prefix) && (x.pool == "" || x.pool != y.pool) {
		b.report(problem(OverlappingPrefix, "%s overlaps %s: %s", x.what, y.what, x.remedy))
	}
}
