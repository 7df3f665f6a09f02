package nb

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// Allowance bounds how much one Commit changes in the load balancers and port groups of some
// owners. Its unit is about one flow on each node. OVN needs about 0.3 ms for a unit, and nothing
// else of the cluster proceeds meanwhile (docs/decisions/0041-pace-of-load-balancers.md).
//
// Changes cost:
//   - A VIP that is added, removed or changed: vipUnits, and one unit for each backend that it gets
//     or loses.
//   - A load balancer of which something else changes: vipUnits for each of its VIPs, and one unit
//     for each of their backends, because OVN makes their flows again.
//   - A port group with other members: groupUnits.
//
// A change is made while units are left, so the last one may exceed the allowance. Other changes
// are held: the database keeps the old state until a later commit. Each VIP changes as a whole: if
// it moves from one load balancer to another, both are written in the same transaction. Ports
// always leave port groups, and always join those that isolate them.
type Allowance struct {
	Left float64 // units; Commit spends them, and may leave a negative number
	// Relabelled has the pods whose changes of port groups count. Other pods join
	// most of their port groups by DB.CommitAndJoin.
	Relabelled map[plan.Key]struct{}
	// Share returns the part of its units that a VIP of an owner counts, from 0 to 1; nil stands for
	// 1. A node port is one frontend with a VIP for each node.
	Share func(owner plan.Key, vip string) float64
	// Held is the result: the owners with held changes, and for each the VIPs that the database still
	// has although the owner no longer wants them.
	Held map[plan.Key][]string
}

const (
	// vipUnits is the number of flows that OVN makes on each node for a VIP without backends.
	vipUnits = 4
	// groupUnits is the cost of a port group that gets or loses members in a commit, however many.
	groupUnits = 6
)

// hold records an owner in Held, with VIPs that the database keeps.
func (a *Allowance) hold(key plan.Key, leaving ...string) {
	if a.Held == nil {
		a.Held = map[plan.Key][]string{}
	}

	a.Held[key] = append(a.Held[key], leaving...)
}

// The allowance for load balancers is spent when an owner is added to a batch, by restrict. The one
// for port groups is spent when the operations are made (groupallowance.go).

// restrict leaves out the changes of the owner's load balancers that exceed the allowance. First,
// holdRows decides on load balancers in which something else than VIPs changes. Then, holdVIPs
// decides on each VIP, except those of held load balancers.
func (b *batch) restrict(key plan.Key, a *Allowance) {
	rows := b.balancerRows(key)
	b.holdRows(key, a, rows)

	partial := a.holdVIPs(key, rows)
	for _, r := range rows {
		if vips, isPartial := partial[r]; r.isHeld || isPartial {
			b.applyHold(key, r, vips)
		}
	}
}

// balancerRow has the VIPs of one load balancer in the database and in its owner's plan.
type balancerRow struct {
	id         string
	record     *record   // nil: it is not planned
	stale      *staleRow // nil: it is planned
	have, want map[string]string
	isHeld     bool // the row must stay as it is
}

// protocol returns the load balancer's protocol.
func (r *balancerRow) protocol() string {
	if r.record != nil {
		text, _ := r.record.columns["protocol"].(string)
		return text
	}

	f, _ := fieldOf(r.stale.row, "protocol")
	if f.Kind() == reflect.Pointer && !f.IsNil() {
		f = f.Elem()
	}

	return f.String()
}

// vipChange is a difference of one VIP in all load balancers of its owner.
type vipChange struct {
	vip           string
	rows          []*balancerRow // those in which it differs
	before, after bool           // a load balancer has the VIP: in the database, in the plan
}

// rank is the place of the change among others: removals are first, and additions last.
func (c *vipChange) rank() int {
	switch {
	case !c.after:
		return 0
	case c.before:
		return 1
	}

	return 2
}

// balancerRows returns the owner's load balancers, planned and stale, sorted by ID.
func (b *batch) balancerRows(key plan.Key) []*balancerRow {
	var rows []*balancerRow

	for _, r := range b.records[key] {
		if r.table == nbmodel.LoadBalancerTable {
			want, _ := r.columns["vips"].(map[string]string)
			rows = append(rows, &balancerRow{id: r.id, record: r, have: vipsOf(r.old), want: want})
		}
	}

	for i := range b.stale[key] {
		if s := &b.stale[key][i]; s.table == nbmodel.LoadBalancerTable {
			rows = append(rows, &balancerRow{id: idOf(s.table, s.row), stale: s, have: vipsOf(s.row)})
		}
	}

	slices.SortFunc(rows, func(x, y *balancerRow) int { return cmp.Compare(x.id, y.id) })

	return rows
}

// holdRows spends the allowance on load balancers of which something else than VIPs changes. It
// marks those that exceed the allowance as held.
func (b *batch) holdRows(key plan.Key, a *Allowance, rows []*balancerRow) {
	for _, r := range rows {
		if r.record == nil || r.record.old == nil || !b.differs(r.record) {
			continue
		}

		if a.Left <= 0 {
			r.isHeld = true

			a.hold(key)

			continue
		}

		for vip, backends := range r.have {
			a.Left -= a.units(key, vip, backends, "")
		}
	}
}

// holdVIPs spends the allowance on changes of VIPs. It returns the VIPs to write for each load
// balancer in which not all changes are made now: the planned ones, but held VIPs as they are in
// the database.
func (a *Allowance) holdVIPs(key plan.Key, rows []*balancerRow) map[*balancerRow]map[string]string {
	partial := map[*balancerRow]map[string]string{}

	for _, c := range vipChanges(rows) {
		isRowHeld := slices.ContainsFunc(c.rows, func(r *balancerRow) bool { return r.isHeld })
		if a.Left > 0 && !isRowHeld {
			a.Left -= a.cost(key, c) // of few changes, if most are held
			continue
		}

		a.hold(key)

		if !c.after {
			a.hold(key, c.vip)
		}

		for _, r := range c.rows {
			if partial[r] == nil {
				partial[r] = map[string]string{}
				maps.Copy(partial[r], r.want)
			}

			delete(partial[r], c.vip)

			if backends, had := r.have[c.vip]; had {
				partial[r][c.vip] = backends
			}
		}
	}

	return partial
}

// applyHold changes the batch so that a load balancer stays as it is if it is held, and otherwise
// gets these VIPs.
func (b *batch) applyHold(key plan.Key, r *balancerRow, vips map[string]string) {
	isEmptyInsert := r.stale == nil && r.record.old == nil && len(vips) == 0 // all VIPs of a new one are held

	switch {
	case r.isHeld || isEmptyInsert:
		b.records[key] = slices.DeleteFunc(b.records[key], func(o *record) bool { return o == r.record })
	case r.stale == nil:
		r.record.columns["vips"] = vips
	case len(vips) > 0:
		r.stale.keep = vips
	default: // a stale load balancer without VIPs is deleted
	}
}

// vipChanges returns the differences between the VIPs that the rows have and those that are wanted,
// in the order in which they are made. The changes of one load balancer follow each other, because
// OVN makes the flows of all VIPs of a load balancer again if one of them changes.
func vipChanges(rows []*balancerRow) []*vipChange {
	type identity struct{ protocol, vip string }

	// Find the VIPs that differ, and the load balancers in which they do.
	found := map[identity]*vipChange{}

	for _, r := range rows {
		note := func(vip string) {
			id := identity{r.protocol(), vip}
			if found[id] == nil {
				found[id] = &vipChange{vip: vip}
			}

			found[id].rows = append(found[id].rows, r)
		}

		for vip, backends := range r.have {
			if want, ok := r.want[vip]; !ok || want != backends {
				note(vip)
			}
		}

		for vip := range r.want {
			if _, ok := r.have[vip]; !ok {
				note(vip)
			}
		}
	}

	// Compare each VIP in all of these load balancers.
	changes := slices.Collect(maps.Values(found))
	for _, c := range changes {
		for _, r := range c.rows {
			_, had := r.have[c.vip]
			_, wanted := r.want[c.vip]
			c.before = c.before || had
			c.after = c.after || wanted
		}
	}

	slices.SortFunc(changes, func(x, y *vipChange) int {
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.rows[0].id, y.rows[0].id),
			cmp.Compare(x.vip, y.vip))
	})

	return changes
}

// cost returns the units of a change.
func (a *Allowance) cost(key plan.Key, c *vipChange) float64 {
	units := 0.0
	for _, r := range c.rows {
		units += a.units(key, c.vip, r.have[c.vip], r.want[c.vip])
	}

	return units
}

// units returns the units of a VIP whose backends change.
func (a *Allowance) units(key plan.Key, vip, before, after string) float64 {
	removed, added := differing(backendsOf(before), backendsOf(after))

	units := float64(vipUnits + len(removed) + len(added))
	if a.Share != nil {
		units *= a.Share(key, vip)
	}

	return units
}

// backendsOf splits the backends of a VIP.
func backendsOf(text string) []string {
	if text == "" {
		return nil
	}

	return strings.Split(text, ",")
}

// vipsOf returns the VIPs of a load balancer in the database, or nil without one.
func vipsOf(m model.Model) map[string]string {
	if m == nil {
		return nil
	}

	f, _ := fieldOf(m, "vips")
	vips, _ := f.Interface().(map[string]string)

	return vips
}

// differs reports whether something else than VIPs changes in an existing load balancer: another
// column, or the switches, routers and groups that refer to it.
func (b *batch) differs(r *record) bool {
	m, columns, err := r.desired(b.cache.DatabaseModel(), b.uuidNamed)
	if err != nil {
		return false // writeRecord reports it
	}

	others := slices.DeleteFunc(columns, func(column string) bool { return column == "vips" })

	row, err := b.difference(r, m, others)
	if err != nil {
		return false // writeRecord reports this error, too
	}

	if len(row) > 0 {
		return true
	}

	for _, p := range r.parents {
		if !b.members.has(p, b.uuidNamed(p.parent), r.uuid) {
			return true
		}
	}

	return len(b.removalOps(r, b.uuidNamed)) > 0
}

// keepVIPs writes the VIPs that a stale load balancer keeps for now.
func (b *batch) keepVIPs(s staleRow) (*ovsdb.Operation, error) {
	m := model.Clone(s.row)
	f, _ := fieldOf(m, "vips")
	f.Set(reflect.ValueOf(s.keep))

	r := &record{table: s.table, id: idOf(s.table, s.row), uuid: s.uuid, old: s.row}

	return b.write(r, m, []string{"vips"})
}

// copyAllowances returns copies of the allowances of the keys, to restore them if a commit fails.
func copyAllowances(allowed map[plan.Key]*Allowance, keys []plan.Key) map[*Allowance]Allowance {
	out := map[*Allowance]Allowance{}

	for _, k := range keys {
		if a := allowed[k]; a != nil {
			now := *a
			now.Held = maps.Clone(a.Held)
			out[a] = now
		}
	}

	return out
}
