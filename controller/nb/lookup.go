package nb

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// The functions rowsOf, rowsNamed and rowsOfPort query the indexes of libovsdb's cache (see
// usableSchema.indexes) with a model, because a query with a condition would take an eighth more
// CPU time per commit. The cache uses the first index with a match, so the model must match in only
// one index: noMatch excludes the other.

// noMatch is neither an owner's key nor a row's name. An empty string would match rows without a
// key or a name.
const noMatch = "\x00"

// rowsOf returns copies of the rows of a table that belong to the owner by their external_ids.
func rowsOf(c *cache.TableCache, table, owner string) (map[string]model.Model, error) {
	rows, err := rowsLike(c, table,
		map[string]any{"external_ids": map[string]string{ownerID: owner}, "name": noMatch})
	maps.DeleteFunc(rows, func(_ string, m model.Model) bool { return externalIDs(m)[ownerID] != owner })

	return rows, err
}

// rowsNamed returns copies of the rows of a table with that name.
func rowsNamed(c *cache.TableCache, table, name string) (map[string]model.Model, error) {
	return rowsLike(c, table,
		map[string]any{"external_ids": map[string]string{ownerID: noMatch}, "name": name})
}

// rowsOfPort returns copies of the rows of a table that belong to the logical port.
func rowsOfPort(c *cache.TableCache, table, port string) (map[string]model.Model, error) {
	return rowsLike(c, table, map[string]any{portColumn: port})
}

// rowsLike returns copies of the rows that an index finds by the values of these columns. It
// returns none if the schema lacks the table.
func rowsLike(c *cache.TableCache, table string, columns map[string]any) (map[string]model.Model, error) {
	t, row := c.Table(table), c.DatabaseModel().Types()[table]
	if t == nil || row == nil {
		return nil, nil // not in the schema
	}

	m := reflect.New(row.Elem()).Interface()
	for column, value := range columns {
		if f, ok := fieldOf(m, column); ok {
			assign(f, value)
		}
	}

	return t.RowsByModels([]model.Model{m})
}

// inOrder returns rows sorted by UUID, so that operations have the same order each time.
func inOrder(rows map[string]model.Model) []model.Model {
	var out []model.Model
	for _, uuid := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[uuid])
	}

	return out
}

// uuidCache caches the UUID of a row by its name, so that a row with all pods in one of its
// columns is not copied for each pod that refers to it. Deleted rows stay in the cache until the
// next full sync: callers must check that the row still exists.
type uuidCache struct {
	mu    sync.Mutex // guards uuids
	uuids map[ref]string
}

// get returns the UUID of a row, or "" if it is not cached.
func (c *uuidCache) get(r ref) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.uuids[r]
}

// set caches the UUID of a row.
func (c *uuidCache) set(r ref, uuid string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.uuids == nil {
		c.uuids = map[ref]string{}
	}

	c.uuids[r] = uuid
}

// reset empties the cache, because another connection may have other rows.
func (c *uuidCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.uuids = nil
}

// update removes a row from the cache if its name or its owner has changed.
func (c *uuidCache) update(table string, old, now model.Model) {
	if nameOf(old) == nameOf(now) && externalIDs(old)[ownerID] == externalIDs(now)[ownerID] {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.uuids, ref{table, nameOf(old)})
	delete(c.uuids, ref{table, nameOf(now)})
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

// Chassis returns the chassis that the owner's routers are bound to, or "" if there is none. After
// the deletion of a node it is the only record of the node's chassis.
func (d *DB) Chassis(key plan.Key) (string, error) {
	conn, err := d.client()
	if err != nil {
		return "", err
	}

	cache := conn.Cache()
	if cache == nil {
		return "", ErrNotConnected
	}

	rows, err := rowsOf(cache, nbmodel.LogicalRouterTable, key.String())
	if err != nil {
		return "", err
	}

	for _, row := range rows {
		f, ok := fieldOf(row, "options")
		if !ok {
			continue
		}

		if options, _ := f.Interface().(map[string]string); options["chassis"] != "" {
			return options["chassis"], nil
		}
	}

	return "", nil
}
