package cloud

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// wantedPool is a subnet pool of a Setup.
type wantedPool struct {
	flag, prefixFlag                 string // the flags that choose it
	id, name                         string // id "": the one with this name, or a new one
	prefix                           netip.Prefix
	shortest, defaultLength, longest int // bounds of the prefix length of nodes' subnets, and its default
	family                           string
	is4                              bool
}

func (s Setup) ipv4Pool() wantedPool {
	return wantedPool{
		flag: "--subnet-pool", prefixFlag: "--cluster-subnet", id: s.SubnetPool, name: s.Cluster,
		prefix: s.Prefix, shortest: ShortestPrefix, defaultLength: defaultPrefix, longest: LongestPrefix,
		family: "IPv4", is4: true,
	}
}

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

// findSubnetPool returns the subnet pool of a family. It has no ID if it does not exist yet.
func (s Setup) findSubnetPool(b *builder, seen SetupObservation, w wantedPool) SubnetPool {
	found := only(seen.SubnetPools, func(p SubnetPool) bool {
		own := p.Name == w.name && p.Description == s.subnetPoolDescription() && p.Project == s.Project

		return w.id != "" && p.ID == w.id || w.id == "" && own
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

func prefixList(all []netip.Prefix) string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}

	return strings.Join(out, ", ")
}

// planSubnetPools makes the missing subnet pools.
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

// addresses are a network's addresses, for a comparison with others.
type addresses struct {
	what   string
	prefix netip.Prefix
	pool   string // ID of the subnet pool that they are from, or that has them
	remedy string
}

// checkOverlaps reports networks that have the same addresses: those of pods, of Services, of the
// VMs, and the others of the router. Subnets that were taken from pods' subnet pool are part of
// it.
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

func (b *builder) checkOverlap(x, y addresses) {
	if x.prefix.Overlaps(y.prefix) && (x.pool == "" || x.pool != y.pool) {
		b.report(problem(OverlappingPrefix, "%s overlaps %s: %s", x.what, y.what, x.remedy))
	}
}

// allowAll are the rules of a security group that allows everything.
var allowAll = [...]Rule{
	{"egress", "IPv4"}, {"egress", "IPv6"}, {"ingress", "IPv4"}, {"ingress", "IPv6"},
}

// findSecurityGroups finds the security groups of Config. If Config has none, it finds the group
// of an earlier setup, which has no ID if it does not exist yet.
func (s Setup) findSecurityGroups(b *builder, seen SetupObservation, st *setupState) {
	for _, id := range s.Groups {
		i := slices.IndexFunc(seen.SecurityGroups, func(g SecurityGroup) bool { return g.ID == id })
		if i < 0 {
			b.report(problem(UnknownObject, "the project has no security group %s "+
				"(--security-groups), or the credentials may not see it: 'openstack security "+
				"group list' lists those of the project", id))

			continue
		}

		st.chosen = append(st.chosen, seen.SecurityGroups[i])
	}

	if len(s.Groups) > 0 {
		return
	}

	own := only(seen.SecurityGroups, func(g SecurityGroup) bool {
		return g.Name == s.Cluster && g.Description == s.groupDescription() && g.Project == s.Project
	})

	switch len(own) {
	case 0:
	case 1:
		st.group = own[0]
	default:
		b.report(problem(AmbiguousObject, "the project has %d security groups of cluster %s: "+
			"choose one by --security-groups %s, or delete the unused ones", len(own), s.Cluster,
			strings.Join(ids(own, func(g SecurityGroup) string { return g.ID }), " or ")))
	}
}

// planSecurityGroup makes the security group that allows everything, or its missing rules.
func (s Setup) planSecurityGroup(b *builder, st setupState) quotaNeeds {
	var n quotaNeeds

	switch {
	case len(s.Groups) > 0:
	case st.group.ID == "":
		n.securityGroups++
		n.rules += len(allowAll) // Neutron makes some of them with the group

		b.add(CreateSecurityGroup{s.Cluster, s.groupDescription()})
	default:
		for _, r := range allowAll {
			if !slices.Contains(st.group.Open, r) {
				n.rules++

				b.add(CreateRule{st.group.ID, r})
			}
		}
	}

	return n
}
