package plan

import services "github.com/ovn-ebpf/ovn-ebpf/service"

// Policies of all namespaces together make the port groups and flows that OVN computes at each
// change, and any pod may have to wait for that. So each namespace has a basic share, which no
// other namespace can take. Beyond it, the namespaces that need more divide a total equally
// (docs/tenants.md). The shares follow from the objects alone, so a restart changes nothing.
const (
	// basicGroups is the number of port groups that a namespace's policies can always have in their
	// rules.
	basicGroups = 32
	// sharedGroups is the total beyond, for each node of the cluster.
	sharedGroups = 64
	// basicFlows and sharedFlows are the same for flows on each node.
	basicFlows  = 2048
	sharedFlows = 4096
)

// policyUse is what policies use: port groups in their rules, and flows of each node.
type policyUse struct{ groups, flows int }

// noShare is the limit of a namespace if there were no others: its own bounds are lower.
var noShare = policyUse{groups: 1 << 30, flows: 1 << 30}

// exceeds reports whether the use is higher than a limit.
func (u policyUse) exceeds(limit policyUse) bool {
	return u.groups > limit.groups || u.flows > limit.flows
}

// policyShares computes the share of each namespace.
type policyShares struct {
	nodes int       // countedNodes
	users policyUse // the number of namespaces that request more than the basic share
}

// add adds a namespace with a request, or removes it if n is -1.
func (s *policyShares) add(request policyUse, n int) {
	if request.groups > basicGroups {
		s.users.groups += n
	}

	if request.flows > basicFlows {
		s.users.flows += n
	}
}

// limit returns the share of each namespace. It is computed with the number of users rounded up to
// a power of two, so that it seldom changes.
func (s *policyShares) limit() policyUse {
	return policyUse{
		groups: basicGroups + sharedGroups*s.nodes/services.RoundUp(s.users.groups),
		flows:  basicFlows + sharedFlows*s.nodes/services.RoundUp(s.users.flows),
	}
}

// countedNodes returns the number of nodes on which shares depend.
func countedNodes(c *Cluster) int { return services.CountedNodes(len(c.Stores[KindNode].List())) }
