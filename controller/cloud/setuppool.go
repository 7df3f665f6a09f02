package cloud

import (
	"net/netip"
	"slices"
	"strings"
)

// wantedPool describes a subnet pool of a Setup: of IPv4, or of IPv6. The subnet pool is chosen by
// its ID, or made of a prefix.
type wantedPool struct {
	flag, prefixFlag                 string // the flags that choose it
	id, name                         string // id "": the one with this name, or a new one
	prefix                           netip.Prefix
	shortest, defaultLength, longest int // bounds of the prefix length of nodes' subnets, and its default
	family                           string
	is4                              bool
}

// ipv4Pool returns the subnet pool of the pods' IPv4 addresses.
func (s Setup) ipv4Pool() wantedPool {
	return wantedPool{
		flag: "--subnet-pool", prefixFlag: "--cluster-subnet", id: s.SubnetPool, name: s.Cluster,
		prefix: s.Prefix, shortest: ShortestPrefix, defaultLength: defaultPrefix, longest: LongestPrefix,
		family: "IPv4", is4: true,
	}
}

// ipv6Pool returns the subnet pool of the pods' IPv6 addresses. It is used only if hasIPv6.
func (s Setup) ipv6Pool() wantedPool {
	return wantedPool{
		flag: "--subnet-pool-6", prefixFlag: "--cluster-subnet-6", id: s.SubnetPool6,
		name: s.subnetPool6Name(), prefix: s.Prefix6,
		shortest: prefix6, defaultLength: prefix6, longest: prefix6, family: "IPv6",
	}
}

// Prefix lengths of nodes' subnets.
const (
	defaultPrefix = 26 // of subnets that are taken from a subnet pool without a length
	prefix6       = 64
)

// findSubnetPool returns the wanted subnet pool, and reports why it cannot be used. It has no ID if
// it does not exist yet.
func (s Setup) findSubnetPool(b *builder, seen SetupObservation, w wantedPool) SubnetPool {
	found := only(seen.SubnetPools, func(p SubnetPool) bool {
		if w.id != "" {
			return p.ID == w.id
		}

		return p.Name == w.name && p.Description == s.subnetPoolDescription() && p.Project == s.Project
	})

	switch {
	case len(found) == 0 && w.id != "":
		b.report(problem(UnknownObject, "the project has no subnet pool %s (%s), or the "+
			"credentials may not see it: 'openstack subnet pool list' lists those of the project",
			w.id, w.flag))

		return SubnetPool{}
	case len(found) == 0:
		b.check(checkPrefix(w))
		return SubnetPool{}
	case len(found) > 1:
		b.report(problem(AmbiguousObject, "the project has %d %s subnet pools of cluster %s: "+
			"choose one by %s %s, or delete the unused ones",
			len(found), w.family, s.Cluster, w.flag,
			strings.Join(ids(found, func(p SubnetPool) string { return p.ID }), " or ")))

		return SubnetPool{}
	case found[0].Project != s.Project:
		b.report(problem(ForeignObject, "subnet pool %s (%s) is of project %s, and not of "+
			"project %s, which the credentials are for: use a subnet pool of this project, or "+
			"omit the flag",
			found[0].label(), w.flag, found[0].Project, s.Project))

		return SubnetPool{}
	}

	b.check(checkPool(w, found[0]))

	return found[0]
}

// check reports the problem if there is one.
func (b *builder) check(p *Problem) {
	if p != nil {
		b.report(p)
	}
}

// checkPrefix returns why no subnet pool can be made of the prefix.
func checkPrefix(w wantedPool) *Problem {
	switch {
	case !w.prefix.IsValid():
		return problem(InvalidSubnetPool, "the addresses of pods are not known: give %s or %s",
			w.prefixFlag, w.flag)
	case w.prefix.Addr().Is4() != w.is4:
		return problem(InvalidSubnetPool, "%s %s is not %s", w.prefixFlag, w.prefix, w.family)
	case w.prefix.Bits() > w.longest:
		return problem(InvalidSubnetPool, "%s %s has no room for a node, which needs at least a "+
			"/%d: give a larger network", w.prefixFlag, w.prefix, w.longest)
	}

	return nil
}

// checkPool returns why the subnet pool is not the wanted one.
func checkPool(w wantedPool, p SubnetPool) *Problem {
	switch {
	case len(p.Prefixes) == 0 || p.Prefixes[0].Addr().Is4() != w.is4:
		return problem(InvalidSubnetPool, "subnet pool %s has the prefixes %s, which are not %s: "+
			"give another %s", p.label(), prefixList(p.Prefixes), w.family, w.flag)
	case p.Shortest > w.longest || p.Longest < w.shortest:
		return problem(InvalidSubnetPool, "subnet pool %s has subnets of /%d to /%d, and a node "+
			"needs one of /%d to /%d: give another %s, or change the lengths with 'openstack "+
			"subnet pool set'", p.label(), p.Shortest, p.Longest, w.shortest, w.longest, w.flag)
	case w.prefix.IsValid() && !slices.Contains(p.Prefixes, w.prefix):
		return problem(InvalidSubnetPool, "subnet pool %s has %s, and not %s: give %s %s, or "+
			"another %s",
			p.label(), prefixList(p.Prefixes), w.prefix, w.prefixFlag, p.Prefixes[0], w.instead())
	}

	return nil
}

// instead returns the flag by which another subnet pool is chosen.
func (w wantedPool) instead() string {
	if w.id != "" {
		return w.flag
	}

	return "--cluster-name"
}

// prefixList returns the prefixes as text, for messages.
func prefixList(all []netip.Prefix) string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}

	return strings.Join(out, ", ")
}

// planSubnetPools plans the missing subnet pools, and returns the quotas that they need.
func (s Setup) planSubnetPools(b *builder, st setupState) quotaNeeds {
	var n quotaNeeds

	plan := func(w wantedPool, have SubnetPool) {
		if have.ID != "" || w.id != "" {
			return
		}

		n.subnetPools++

		b.add(CreateSubnetPool{
			Name: w.name, Description: s.subnetPoolDescription(), Prefix: w.prefix,
			Shortest: max(w.shortest, w.prefix.Bits()), Default: max(w.defaultLength, w.prefix.Bits()),
			Longest: w.longest,
		})
	}

	plan(s.ipv4Pool(), st.subnetPool)

	if s.hasIPv6() {
		plan(s.ipv6Pool(), st.subnetPool6)
	}

	return n
}
