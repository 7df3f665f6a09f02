package nb

import (
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The functions below ask the cache's indexes with a model: to ask with a condition takes a commit
// an eighth more CPU. The cache answers by the first index that has something, so the model matches
// in one.

// nobody is no owner's key and no row's name: rows that have none would be found by "".
const nobody = "\x00"

// rowsOf returns copies of the rows of a table whose external_ids name the owner.
func rowsOf(c *cache.TableCache, table, owner string) (map[string]model.Model, error) {
	rows, err := rowsLike(c, table, map[string]any{"external_ids": map[string]string{ownerID: owner}, "name": nobody})
	maps.DeleteFunc(rows, func(_ string, m model.Model) bool { return externalIDs(m)[ownerID] != owner })
	return rows, err
}

// rowsNamed returns copies of the rows of a table with that name.
func rowsNamed(c *cache.TableCache, table, name string) (map[string]model.Model, error) {
	return rowsLike(c, table, map[string]any{"external_ids": map[string]string{ownerID: nobody}, "name": name})
}

// rowsOfPort returns copies of the rows of a table that are of the logical port.
func rowsOfPort(c *cache.TableCache, table, port string) (map[string]model.Model, error) {
	return rowsLike(c, table, map[string]any{portColumn: port})
}

func rowsLike(c *cache.TableCache, table string, columns map[string]any) (map[string]model.Model, error) {
	t, row := c.Table(table), c.DatabaseModel().Types()[table]
	if t == nil || row == nil {
		return nil, nil // the schema does not have it
	}
	m := reflect.New(row.Elem()).Interface()
	for column, value := range columns {
		if f, ok := fieldOf(m, column); ok {
			assign(f, value)
		}
	}
	return t.RowsByModels([]model.Model{m})
}

// inOrder returns rows by their UUIDs, so that what is done with them is the same each time.
func inOrder(rows map[string]model.Model) []model.Model {
	var out []model.Model
	for _, uuid := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[uuid])
	}
	return out
}
