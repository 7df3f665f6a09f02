package nb

import (
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// A port that exists must join a new port group that isolates it, after the first policy with that
// selector was created. Its owner's commit fails, because the group does not exist yet. The port
// joins the group in the transaction that creates it. So it is isolated at once, and northd
// computes all logical flows once and not twice: for the new group, and for the first port on a
// switch. Nothing else of the owner is changed before its next commit, because a port that leaves
// another group may lose isolation.

// recordMissing records the groups that do not exist and isolate the existing port of a record. A
// new port that is given up before it is written would never be removed again.
func (b *batch) recordMissing(r *record, exists func(ref) bool) {
	if r.table != nbmodel.LogicalSwitchPortTable || r.old == nil {
		return
	}

	m := &laterJoins{key: r.key, port: r.name, groups: plan.Access{}}

	for _, p := range r.parents {
		if p.parent.table == nbmodel.PortGroupTable && !r.mayJoinLater(p) && !exists(p.parent) {
			m.groups[p.parent.name] = nil
		}
	}

	b.missing[r.name] = m
}

// isolate returns the UUIDs of up to portsPerGroup ports that wait for a record, if it is a new
// port group. It leaves out those in the batch, which join it themselves.
func (b *batch) isolate(r *record) []string {
	if r.table != nbmodel.PortGroupTable || r.old != nil || b.isolations.groups[r.name] == nil {
		return nil
	}

	ports := b.isolations.groups[r.name].first(portsPerGroup)
	b.isolated = append(b.isolated, join{r.name, ports})

	var uuids []string

	for _, p := range ports {
		_, isPlanned := b.records[p.owner]
		if uuid := b.uuidNamed(ref{nbmodel.LogicalSwitchPortTable, p.name}); uuid != "" && !isPlanned {
			uuids = append(uuids, uuid)
		}
	}

	slices.Sort(uuids)

	return uuids
}

// portsPerGroup is how many ports a new group has at once. The owners of others add them.
const portsPerGroup = 1024
