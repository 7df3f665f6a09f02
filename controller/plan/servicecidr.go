package plan

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// serviceCIDRRows returns no rows. It returns an *Unserved for the networks of a ServiceCIDR that
// are outside the configured service networks, because the API server allocates cluster IPs from
// them. Networks of a family without pods are ignored, because no service of that family is served.
// A configured network may be wider than the API server's.
func serviceCIDRRows(c *Cluster, key Key) ([]Row, error) {
	cidr := get[networkingv1.ServiceCIDR](c, key)
	if cidr == nil || len(c.Config.ServiceCIDRs) == 0 {
		return nil, nil
	}

	var wrong shortfall

	for _, text := range cidr.Spec.CIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			wrong.add("service network %q: %w", text, err)
			continue
		}

		sameFamily := func(q netip.Prefix) bool { return q.Addr().Is4() == p.Addr().Is4() }
		covers := func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }

		if slices.ContainsFunc(c.Config.ClusterCIDRs, sameFamily) &&
			!slices.ContainsFunc(c.Config.ServiceCIDRs, covers) {
			wrong.add("service network %s of the API server: outside the service networks %s (--k8s-service-cidrs)",
				p, strings.Join(prefixStrings(c.Config.ServiceCIDRs), ","))
		}
	}

	return nil, newUnserved(wrong...)
}
