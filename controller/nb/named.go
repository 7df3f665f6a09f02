package nb

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// named caches the UUID of a row by its name, so that a row with all pods in one of its columns is
// not copied for each pod that refers to it. Deleted rows stay in the cache until the next full
// sync: callers must check that the row still exists.
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

// reset empties the cache, because another connection may have other rows.
func (n *named) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uuids = nil
}

// changed removes a row's name from the cache if its name or its owner has changed.
func (n *named) changed(table string, old, now model.Model) {
	if nameOf(old) == nameOf(now) && externalIDs(old)[ownerID] == externalIDs(now)[ownerID] {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.uuids, ref{table, nameOf(old)})
	delete(n.uuids, ref{table, nameOf(now)})
}

// uuidNamed returns the UUID of the row that lookup returns, or "" for none.
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
