package nb

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// OVN needs 1 to 3 ms for each port group that gets a port, and northd computes all logical flows again
// if the group had no port on that switch. Policies of any namespace may put a pod into thousands of
// groups. So a commit with allowances leaves out most groups that only allow traffic. CommitAndJoin adds the
// ports to some of these groups at a time, all ports of a group together
// (docs/decisions/0069-joining-groups.md).

// ownGroupsAtOnce is how many groups of policies of its own namespace a new port joins in the
// transaction that creates it.
const ownGroupsAtOnce = 16

// laterJoins has the groups that a port of a batch joins later.
type laterJoins struct {
	key    plan.Key
	port   string
	groups plan.Access
}

// add adds a group.
func (l *laterJoins) add(r *record, p membership) {
	if l.groups == nil {
		l.groups = plan.Access{}
	}

	l.groups[p.parent.name] = r.access[p.parent.name]
}

// joinsLater reports whether a port joins a group by CommitAndJoin, and not now. All ports join
// groups that isolate them at once. New ports also join ownGroupsAtOnce groups of their own
// namespace, if these have a port on the same switch: if a port is the first one there, northd
// computes all logical flows again. Pods with other labels have an allowance for such groups
// (holdsMembership). targets has the UUIDs of parents.
func (b *batch) joinsLater(r *record, p membership, targets map[ref]string) bool {
	if b.allowed == nil || !r.mayJoinLater(p) {
		return false
	}

	if !slices.Contains(r.access[p.parent.name], r.key.Namespace) {
		return true
	}

	if r.old != nil {
		return b.paysForGroups(r, p.parent.table) == nil
	}

	if r.joined == ownGroupsAtOnce || !b.isOnSwitchOf(r, targets, targets[p.parent]) {
		return true
	}

	r.joined++

	return false
}

// isOnSwitchOf reports whether a group has a port on the switch of a new port.
func (b *batch) isOnSwitchOf(r *record, targets map[ref]string, group string) bool {
	return slices.ContainsFunc(r.parents, func(p membership) bool {
		return p.parent.table == nbmodel.LogicalSwitchTable && b.remainsOn(targets[p.parent], group, nil)
	})
}

// portsPerTurn is how many ports join a group before it is the turn of the next namespace.
const portsPerTurn = 64

// joins has the ports that must still join groups. Its methods are called with DB.committing held.
type joins struct {
	groups map[string]*joinedGroup // by name
	ports  map[string]*joiningPort // by name
	last   string                  // the namespace of the last group that take has returned
	count  atomic.Int64            // of groups; may be read at any time
}

// joinedGroup has the ports that must join a group. There may be millions of pairs of a port and a
// group, so both refer to each other by pointers and names only.
type joinedGroup struct {
	namespaces []string // of the policies that use the group
	ports      map[*joiningPort]struct{}
	order      []*joiningPort // those that have waited longest first; others than in ports are ignored
}

// joiningPort is a port that must join groups.
type joiningPort struct {
	name   string
	owner  plan.Key
	groups map[string]struct{} // names
}

// join is one turn: ports that join a group.
type join struct {
	group string
	ports []*joiningPort
}

// set replaces the groups that a port must join. In a group for which it waits already, it keeps its
// place.
func (j *joins) set(l laterJoins) {
	defer j.updateCount()

	p := j.ports[l.port]
	if p == nil {
		if len(l.groups) == 0 {
			return
		}

		if j.groups == nil {
			j.groups, j.ports = map[string]*joinedGroup{}, map[string]*joiningPort{}
		}

		p = &joiningPort{name: l.port, groups: map[string]struct{}{}}
		j.ports[l.port] = p
	}

	p.owner = l.key

	for name := range p.groups {
		if _, still := l.groups[name]; !still {
			j.removeFrom(name, p)
		}
	}

	for name, namespaces := range l.groups {
		g := j.groups[name]
		if g == nil {
			g = &joinedGroup{ports: map[*joiningPort]struct{}{}}
			j.groups[name] = g
		}

		g.namespaces = namespaces

		if _, waits := p.groups[name]; !waits {
			p.groups[name] = struct{}{}
			g.add(p)
		}
	}

	if len(p.groups) == 0 {
		delete(j.ports, p.name)
	}
}

// add adds a port that does not wait for the group.
func (g *joinedGroup) add(p *joiningPort) {
	// Forget ports that were removed, so that a port which comes and goes does not make order longer.
	if len(g.order) > 2*len(g.ports)+portsPerTurn {
		g.order = g.first(len(g.ports))
	}

	g.ports[p] = struct{}{}
	g.order = append(g.order, p)
}

// first returns up to n ports that have waited longest.
func (g *joinedGroup) first(n int) []*joiningPort {
	var out []*joiningPort

	seen := map[*joiningPort]bool{} // a port may have been removed and added again

	for _, p := range g.order {
		if len(out) == n {
			break
		}

		if _, waits := g.ports[p]; waits && !seen[p] {
			seen[p], out = true, append(out, p)
		}
	}

	return out
}

// remove removes a port, which joins no groups any more.
func (j *joins) remove(port string) { j.set(laterJoins{port: port}) }

// removeFrom removes a port from a group, which is removed after its last port.
func (j *joins) removeFrom(group string, p *joiningPort) {
	delete(p.groups, group)

	g := j.groups[group]
	delete(g.ports, p)

	if len(g.ports) == 0 {
		delete(j.groups, group)
	}
}

// done removes the ports of a join, which have joined the group.
func (j *joins) done(done join) {
	defer j.updateCount()

	for _, p := range done.ports {
		j.removeFrom(done.group, p)

		if len(p.groups) == 0 {
			delete(j.ports, p.name)
		}
	}
}

// reset removes all groups.
func (j *joins) reset() {
	j.groups, j.ports = nil, nil
	j.updateCount()
}

func (j *joins) updateCount() { j.count.Store(int64(len(j.groups))) }

// take returns the joins of up to so many groups and ports, at least one join if any is left. The
// namespaces take turns, so that a namespace with few groups and ports does not wait for one with many.
func (j *joins) take(groups, ports int) []join {
	of := map[string][]string{} // groups by namespace

	for name, g := range j.groups {
		for _, namespace := range g.namespaces {
			of[namespace] = append(of[namespace], name)
		}
	}

	turns := slices.Sorted(maps.Keys(of))
	for _, namespace := range turns {
		slices.Sort(of[namespace])
	}

	// Begin with the namespace after the last one.
	next, found := slices.BinarySearch(turns, j.last)
	if found {
		next++
	}

	var out []join

	taken := map[string]bool{}

	for len(out) < groups && ports > 0 && len(turns) > 0 {
		next %= len(turns)
		namespace := turns[next]

		names := of[namespace]
		for len(names) > 0 && taken[names[0]] {
			names = names[1:]
		}

		if len(names) == 0 {
			turns = slices.Delete(turns, next, next+1)
			continue
		}

		taken[names[0]] = true
		out = append(out, join{names[0], j.groups[names[0]].first(portsPerTurn)})
		ports -= len(out[len(out)-1].ports)
		of[namespace] = names[1:]
		j.last = namespace
		next++
	}

	return out
}

// Joining returns the number of port groups that ports must still join.
func (d *DB) Joining() int { return int(d.joins.count.Load()) }

// CommitAndJoin is Commit that also adds ports to some of the port groups that they must still join, in
// the same transaction, with about so many groups and ports. The namespaces of the policies take turns.
// The keys must not be those of pods.
//
// If ports could not join, it returns why, separately from the errors of the keys. If the database has
// refused that, it also returns the owners of these ports, which must be committed again.
func (d *DB) CommitAndJoin(
	ctx context.Context,
	want map[plan.Key][]plan.Row,
	groups, ports int,
) (errs map[plan.Key]error, again []plan.Key, err error) {
	return d.commitWith(ctx, want, nil, groups, ports)
}

// join adds ports to port groups in a transaction of their own. If the database refuses it, join returns
// the owners of the ports.
func (d *DB) join(ctx context.Context, conn client.Client, joins []join) ([]plan.Key, error) {
	b := newBatch(conn, &d.members, nil)
	if b.cache == nil {
		return nil, ErrNotConnected
	}

	var err error
	if ops := b.joinOps(joins); len(ops) > 0 {
		err = d.transact(ctx, conn, ops)
	}

	var refused *refusedError

	isRefused := errors.As(err, &refused)
	if err != nil && !isRefused {
		return nil, err
	}

	var owners []plan.Key

	for _, join := range joins {
		d.joins.done(join)

		for _, p := range join.ports {
			owners = append(owners, p.owner)
		}
	}

	if !isRefused {
		return nil, nil
	}

	slices.SortFunc(owners, plan.Key.Compare)

	return slices.Compact(owners), err
}

// joinOps returns the operations of the joins. A group or port that does not exist was removed by a
// commit, and is left out.
func (b *batch) joinOps(joins []join) []ovsdb.Operation {
	additions := map[addition][]string{}

	for _, join := range joins {
		group := b.uuidNamed(ref{nbmodel.PortGroupTable, join.group})
		if group == "" {
			continue
		}

		to := addition{nbmodel.PortGroupTable, group, "ports"}

		for _, p := range join.ports {
			if uuid := b.uuidNamed(ref{nbmodel.LogicalSwitchPortTable, p.name}); uuid != "" {
				additions[to] = append(additions[to], uuid)
			}
		}
	}

	return additionOps(additions)
}
