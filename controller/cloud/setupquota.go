package cloud

// quotaNeeds are numbers of objects that a Setup and the pool of the first node still need, by
// their quota.
type quotaNeeds struct {
	networks, subnets, ports, trunks            int
	routers, subnetPools, securityGroups, rules int
}

func (n *quotaNeeds) add(o quotaNeeds) {
	n.networks += o.networks
	n.subnets += o.subnets
	n.ports += o.ports
	n.trunks += o.trunks
	n.routers += o.routers
	n.subnetPools += o.subnetPools
	n.securityGroups += o.securityGroups
	n.rules += o.rules
}

// smallestPool returns the needs of the smallest pool of a node.
func (s Setup) smallestPool() quotaNeeds {
	subnets := 1
	if s.hasIPv6() {
		subnets = 2
	}

	const metadata = 1 // Neutron makes a port for OVN's metadata in each network

	return quotaNeeds{networks: 1, subnets: subnets, ports: fewestPorts + subnets + metadata, trunks: 1}
}

// check reports the quotas that do not leave room for what is needed.
func (n quotaNeeds) check(b *builder, have Quotas) {
	for _, q := range []struct {
		resource string
		needed   int
		quota    Quota
	}{
		{"networks", n.networks, have.Networks},
		{"subnets", n.subnets, have.Subnets},
		{"ports", n.ports, have.Ports},
		{"trunks", n.trunks, have.Trunks},
		{"routers", n.routers, have.Routers},
		{"subnet pools", n.subnetPools, have.SubnetPools},
		{"security groups", n.securityGroups, have.SecurityGroups},
		{"security group rules", n.rules, have.Rules},
	} {
		if q.quota.Limit >= 0 && q.needed > 0 && q.quota.Used+q.needed > q.quota.Limit {
			b.report(problem(QuotaExceeded, "quota of %s: limit %d, used %d, needed %d more for "+
				"the cluster and its first node: ask the operator of the cloud for a limit of at "+
				"least %d",
				q.resource, q.quota.Limit, q.quota.Used, q.needed, q.quota.Used+q.needed))
		}
	}
}
