package plan

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// masqueradePriority is higher than the priority of ACLs that allow traffic.
const masqueradePriority = allowPriority + 1

// masqueradeACL drops packets from pods to the masquerade networks, which are only for a node's
// host and its gateway router. There a host answers by an address that no ipBlock names, and
// traffic by the gateway router hides the pod's address from the host. The place of the ACL has two
// reasons:
//   - Every packet of a pod passes the node's switch, including packets sent to the MAC address of
//     the management port, which bypass all routers. The gateway router's own load balancers, which
//     lead clients to the host by these addresses, come later.
//   - It is evaluated after load balancing, so an EndpointSlice with such an address opens no path.
//
// Replies pass, as with any ACL that does not name connection state. A pod that reaches itself by a
// Service replies to 169.254.169.5, and hairpin traffic of the host comes from there.
func (n node) masqueradeACL() Row {
	out := egress()

	return ACL{
		Switch:    nodeSwitch(n.name),
		Rule:      "masquerade",
		Label:     aclLabel("masquerade", n.name),
		Direction: out.aclDirection,
		Priority:  masqueradePriority,
		Match: fmt.Sprintf("(ip4.dst == %s || ip6.dst == %s)",
			masquerade.Of(true).Subnet, masquerade.Of(false).Subnet),
		Action:  "drop",
		Options: out.aclOptions,
	}
}
