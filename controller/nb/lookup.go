package nb

import (
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The functions below query the cache's indexes with a model. A query with a condition would take
// an eighth more CPU per commit. The cache uses the first index with a match, so the model must
// match in only one index.

// noMatch is neither an owner's key nor a row's name. An empty string would match rows without
// them.
const noMatch = "\x00"

// rowsOf returns copies of the rows of a table that belong to the owner by their external_ids.
func rowsOf(c *cache.TableCache, table, owner string) (map[string]model.Model, error) {
	rows, err := rowsLike(c, table, map[string]any{"external_ids": map[string]string{ownerID: owner}, "name": noMatch})
	maps.DeleteFunc(rows, func(_ string, m model.Model) bool { return externalIDs(m)[ownerID] != owner })
	return rows, err
}

// rowsNamed returns copies of the rows of a table with that name.
func rowsNamed(c *cache.TableCache, table, name string) (map[string]model.Model, error) {
	return rowsLike(c, table, map[string]any{"external_ids": map[string]string{ownerID: noMatch}, "name": name})
}

// rowsOfPort returns copies of the rows of a table that belong to the logical port.
func rowsOfPort(c *cache.TableCache, table, port string) (map[string]model.Model, error) {
	return rowsLike(c, table, map[string]any{portColumn: port})
}

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
