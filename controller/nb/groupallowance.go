package nb

import (
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// groupChanges has, for each allowance, the UUIDs of the port groups that it has paid for in a
// batch.
type groupChanges map[*Allowance]map[string]struct{}

// pay spends the allowance on a port group, unless it has paid for it already.
func (g groupChanges) pay(a *Allowance, group string) {
	if g[a] == nil {
		g[a] = map[string]struct{}{}
	}

	if _, hasPaid := g[a][group]; !hasPaid {
		g[a][group] = struct{}{}
		a.Left -= groupUnits
	}
}

// holdsMembership reports whether an existing port must not join a port group now, because this
// exceeds the allowance of its owner. Otherwise, it spends the allowance. group is the UUID of the
// parent, which may be of another table.
func (b *batch) holdsMembership(r *record, p membership, group string) bool {
	a := b.paysForGroups(r, p.parent.table)
	if a == nil {
		return false
	}

	_, hasPaid := b.groups[a][group]
	if !hasPaid && a.Left <= 0 && r.mayJoinLater(p) {
		a.hold(r.key)
		return true
	}

	b.groups.pay(a, group)

	return false
}

// payForRemovals spends the allowance on the port groups that an existing port leaves.
func (b *batch) payForRemovals(r *record, removals []ovsdb.Operation) {
	for _, op := range removals {
		if a := b.paysForGroups(r, op.Table); a != nil {
			b.groups.pay(a, uuidIn(op))
		}
	}
}

// paysForGroups returns the allowance for changes of the record in rows of the table, or nil if
// they are not limited.
func (b *batch) paysForGroups(r *record, table string) *Allowance {
	a := b.allowed[r.key]
	if a == nil || r.old == nil || table != nbmodel.PortGroupTable {
		return nil
	}

	if _, counts := a.Relabelled[r.key]; !counts {
		return nil
	}

	return a
}
