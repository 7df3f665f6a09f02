package nb

import (
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// bytesPerUnit is the length of the part of a match for which OVN makes about one flow, such as a
// comparison with an address or a port group.
const bytesPerUnit = 32

// PolicyUnits returns how much OVN must do if the rows of a policy or selector are committed: one unit
// for each row that is inserted, updated or deleted, and one for each bytesPerUnit of the matches of
// ACLs among them. A unit is about one flow on a node. Without a connection, it returns 0.
func (d *DB) PolicyUnits(key plan.Key, rows []plan.Row) int {
	conn, err := d.client()
	if err != nil {
		return 0
	}

	d.committing.Lock()
	defer d.committing.Unlock()

	b := newBatch(conn, &d.members, nil)
	if b.add(key, d.supportedRows(rows)) != nil {
		return 0
	}

	units := 0

	for _, s := range b.stale[key] {
		match := valueOf[string](s.row, "match")
		units += 1 + len(match)/bytesPerUnit
	}

	for _, r := range b.records[key] {
		if r.old == nil || b.differs(r) {
			match, _ := r.columns["match"].(string)
			units += 1 + len(match)/bytesPerUnit
		}
	}

	return units
}
