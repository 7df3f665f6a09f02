package cloud

import (
	"slices"
	"strings"
)

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

	// Of an earlier setup.
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

// planSecurityGroup plans the security group that allows everything, or its missing rules, and
// returns the quotas that they need. It plans nothing if the operator has chosen groups.
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
