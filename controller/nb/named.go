package nb

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// named remembers which row a name was found to be, so that a row with all pods in one of
// its columns is not copied for each pod that refers to it. Rows that are gone stay in it
// until the next full sync: who asks looks whether the row is there.
type named struct {
	mu    sync.Mutex // guards uuids
	uuids map[ref]string
}

func (n *named) get(r ref) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uuids[r]
}

func (n *named) set(r ref, uuid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uuids == nil {
		n.uuids = map[ref]string{}
	}
	n.uuids[r] = uuid
}

// reset forgets all: another connection's cache may have other rows.
func (n *named) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uuids = nil
}

// changed forgets a row's name when that, or whose it is, is no longer the same.
func (n *named) changed(table string, old, now model.Model) {
	if nameOf(old) == nameOf(now) && externalIDs(old)[ownerID] == externalIDs(now)[ownerID] {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.uuids, ref{table, nameOf(old)})
	delete(n.uuids, ref{table, nameOf(now)})
}

// uuidNamed returns the UUID of the row that lookup returns, "" for none.
func (b *batch) uuidNamed(r ref) string {
	if uuid := b.members.names.get(r); uuid != "" && b.cache.Table(r.table).HasRow(uuid) {
		return uuid
	}
	m := b.lookup(r)
	if m == nil {
		return ""
	}
	b.members.names.set(r, uuidOf(m))
	return uuidOf(m)
}
