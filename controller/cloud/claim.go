package cloud

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// TakenVIFs returns a problem for each Node that announces the VIF of another one, by the Node's
// name. A VIF belongs to the Node whose pool was published with it. Otherwise it belongs to the
// oldest of the Nodes that announce it, and of Nodes of the same age to the one whose name sorts
// first.
//
// published returns the VIF's ID of the pool that was published for a node, or "". VIFs are the
// same if they have the same ID, or the same MAC and address. Nodes without a valid VIF are
// ignored.
func TakenVIFs(nodes []*corev1.Node, published func(node string) string) map[string]Problem {
	var all []claim

	for _, n := range nodes {
		vif, err := annotation.ParseUnderlay(n.Annotations)
		if err != nil {
			continue
		}

		publishedID := published(n.Name)
		isPublished := publishedID != "" && (vif.ID == "" || vif.ID == publishedID)
		all = append(all, claim{node: n, vif: vif, isPublished: isPublished})
	}

	slices.SortFunc(all, claim.compare)

	byID, byAddress := map[string]string{}, map[string]string{} // names of the Nodes that have the VIFs
	taken := map[string]Problem{}

	for _, c := range all {
		address := c.vif.MAC.String() + " " + c.vif.Address.String()

		owner := cmp.Or(byID[c.vif.ID], byAddress[address])
		if owner != "" {
			taken[c.node.Name] = *problem(VIFTaken, "plan pool of node %s: its VIF (%s) is that of node %s: delete the "+
				"Node that is wrong", c.node.Name, cmp.Or(c.vif.ID, address), owner)

			continue
		}

		byAddress[address] = c.node.Name
		if c.vif.ID != "" {
			byID[c.vif.ID] = c.node.Name
		}
	}

	return taken
}

// claim is the VIF that a Node announces.
type claim struct {
	node        *corev1.Node
	vif         annotation.VIF
	isPublished bool // the node's pool was published with this VIF
}

// compare sorts claims by precedence.
func (c claim) compare(o claim) int {
	switch {
	case c.isPublished && !o.isPublished:
		return -1
	case o.isPublished && !c.isPublished:
		return 1
	}

	return cmp.Or(c.node.CreationTimestamp.Compare(o.node.CreationTimestamp.Time),
		cmp.Compare(c.node.Name, o.node.Name))
}
