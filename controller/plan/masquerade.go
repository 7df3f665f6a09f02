package plan

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// masqueradePriority is higher than the priority of ACLs that allow traffic.
const masqueradePriority = allowPriority + 1

// masqueradeACL drops packets from pods to the masquerade networks (package masquerade), which are
// only for a node's host and its gateway router. Through them, pods would bypass policies: the host
// answers at an address that no ipBlock names, and behind the gateway router it does not see the
// pod's address.
//
// The ACL is at the node's switch, for packets from pods, after load balancing:
//   - Every packet of a pod passes the node's switch, including packets sent to the MAC address of
//     the management port, which bypass all routers.
//   - The gateway router's own load balancers, which lead clients to the host by these addresses,
//     are behind the switch.
//   - After load balancing, an EndpointSlice with such an address does not open a path.
//
// Replies pass, as with any ACL that does not name connection state. They are needed: a pod that
// reaches itself by a Service replies to 169.254.169.5, and hairpin traffic of the host comes from
// there.
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
