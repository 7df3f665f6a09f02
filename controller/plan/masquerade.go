package plan

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// masqueradePriority is above that of what policies allow.
const masqueradePriority = allowPriority + 1

// masqueradeACL drops what pods send to the masquerade networks, which are for a node's host and
// its gateway router alone. There a host answers by an address that no ipBlock names, and what
// comes by the gateway router hides the pod's address from it. Two facts decide where this is:
//   - On the node's switch every packet of a pod passes, also one that is sent to the MAC of the
//     management port, past all routers. The gateway router's own load balancers, which lead
//     clients to the host by these addresses, come later.
//   - After load balancing, so an EndpointSlice with such an address opens nothing.
//
// Answers pass, as with any ACL that does not name the state of connections: a pod that reaches
// itself by a Service answers 169.254.169.5, and what the host sends by the hairpin comes from
// there.
func (n node) masqueradeACL() Row {
	out := egress()
	return ACL{
		Switch: nodeSwitch(n.name), Rule: "masquerade", Label: aclLabel("masquerade", n.name), Direction: out.lport, Priority: masqueradePriority,
		Match:  fmt.Sprintf("(ip4.dst == %s || ip6.dst == %s)", masquerade.Of(true).Subnet, masquerade.Of(false).Subnet),
		Action: "drop", Options: out.options,
	}
}
