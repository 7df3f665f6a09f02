package nb

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// northd computes all logical flows again if a port group gets its first port on a switch, or loses its
// last one there. So pods that come, go or change their labels would delay the pods of the whole
// cluster. Instead, the placeholder of the switch joins the group together with the removal of the last
// port. It has no address and is bound to no chassis, so it changes no access. It leaves the group by
// RemovePlaceholders (docs/decisions/0071-placeholders.md).

// The columns that tell the groups and the switch of a port.
const (
	groupPorts  = nbmodel.PortGroupTable + ".ports"
	switchPorts = nbmodel.LogicalSwitchTable + ".ports"
)

// isPlaceholder reports whether the row is a placeholder.
func isPlaceholder(table, name string) bool {
	return table == nbmodel.LogicalSwitchPortTable && plan.IsPlaceholder(name)
}

// placeholderOps returns the operations that add placeholders to port groups, after these operations
// have removed the last port of a switch from a group.
func (b *batch) placeholderOps(ops []ovsdb.Operation) []ovsdb.Operation {
	leaving := map[string]map[string]bool{} // UUIDs of ports, by group
	deleted := map[string]bool{}            // UUIDs of rows of root tables

	for _, op := range ops {
		uuid := uuidIn(op)

		switch {
		case op.Op == ovsdb.OperationDelete:
			deleted[uuid] = true
		case op.Op == ovsdb.OperationMutate && op.Table == nbmodel.PortGroupTable:
			for _, port := range portsRemovedBy(op) {
				if leaving[uuid] == nil {
					leaving[uuid] = map[string]bool{}
				}

				leaving[uuid][port] = true
			}
		}
	}

	additions := map[addition][]string{}

	for group, ports := range leaving {
		if deleted[group] || !b.ownsGroup(group) {
			continue
		}

		to := addition{nbmodel.PortGroupTable, group, "ports"}

		for sw := range b.switchesOf(ports) {
			if placeholder := b.placeholderOf(sw); placeholder != "" && !deleted[sw] && !b.remainsOn(sw, group, ports) {
				additions[to] = append(additions[to], placeholder)
			}
		}

		slices.Sort(additions[to])
	}

	return additionOps(additions)
}

// ownsGroup reports whether a port group belongs to one of our owners.
func (b *batch) ownsGroup(group string) bool {
	b.members.indexOf(groupPorts)
	return b.members.isOurs(groupPorts, group)
}

// switchesOf returns the UUIDs of the switches that have ports.
func (b *batch) switchesOf(ports map[string]bool) map[string]bool {
	switches := map[string]bool{}

	for port := range ports {
		for _, sw := range b.members.indexOf(switchPorts)[port] {
			switches[sw] = true
		}
	}

	return switches
}

// placeholderOf returns the UUID of the placeholder of a switch, or "" for none.
func (b *batch) placeholderOf(sw string) string {
	b.members.indexOf(switchPorts)

	row := b.members.columns[switchPorts].rows[sw]
	if row == nil {
		return ""
	}

	return b.uuidNamed(ref{nbmodel.LogicalSwitchPortTable, plan.PlaceholderPort(nameOf(row))})
}

// remainsOn reports whether the group still has a port on the switch after some of its ports have left.
// It looks through the shorter list of ports: a group may have all pods, and a switch those of one node.
func (b *batch) remainsOn(sw, group string, leaving map[string]bool) bool {
	groupsOf, switchOf := b.members.indexOf(groupPorts), b.members.indexOf(switchPorts)
	inGroup, onSwitch := b.members.children(groupPorts, group), b.members.children(switchPorts, sw)

	if len(inGroup) <= len(onSwitch) {
		return slices.ContainsFunc(inGroup, func(port string) bool {
			return !leaving[port] && slices.Contains(switchOf[port], sw)
		})
	}

	return slices.ContainsFunc(onSwitch, func(port string) bool {
		return !leaving[port] && slices.Contains(groupsOf[port], group)
	})
}

// portsRemovedBy returns the UUIDs of the rows that an operation removes from its column "ports".
func portsRemovedBy(op ovsdb.Operation) []string {
	var out []string

	for _, m := range op.Mutations {
		set, isSet := m.Value.(ovsdb.OvsSet)
		if !isSet || m.Column != "ports" || m.Mutator != ovsdb.MutateOperationDelete {
			continue
		}

		for _, element := range set.GoSet {
			if uuid, ok := element.(ovsdb.UUID); ok {
				out = append(out, uuid.GoUUID)
			}
		}
	}

	return out
}

// RemovePlaceholders removes all placeholders from port groups, in one transaction. Without this, the
// nodes would keep flows for groups in which they have no pod any more. northd may compute all logical
// flows again.
func (d *DB) RemovePlaceholders(ctx context.Context) error {
	conn, err := d.client()
	if err != nil {
		return err
	}

	d.committing.Lock()
	defer d.committing.Unlock()

	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()

	b := newBatch(conn, &d.members, nil)
	if b.cache == nil {
		return ErrNotConnected
	}

	table := b.cache.Table(nbmodel.LogicalSwitchPortTable)
	if table == nil {
		return nil // not in the schema
	}

	placeholders := map[string][]string{} // by group

	for uuid, row := range table.RowsShallow() {
		if !plan.IsPlaceholder(nameOf(row)) {
			continue
		}

		for _, group := range b.members.indexOf(groupPorts)[uuid] {
			placeholders[group] = append(placeholders[group], uuid)
		}
	}

	var ops []ovsdb.Operation
	for _, group := range slices.Sorted(maps.Keys(placeholders)) {
		ops = append(ops, removal(nbmodel.PortGroupTable, group, "ports", placeholders[group]...))
	}

	if len(ops) == 0 {
		return nil
	}

	return d.transact(ctx, conn, ops)
}
