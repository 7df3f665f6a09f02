package nb

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// ref names a row by table and name, as plans do.
type ref struct{ table, name string }

func (r ref) String() string { return fmt.Sprintf("%s %q", r.table, r.name) }

// membership says that a row must be in a column of a parent.
type membership struct {
	parent ref
	column string
}

// record is a planned row on its way to the database.
type record struct {
	key     plan.Key
	table   string
	name    string // "" in tables whose rows have none
	id      string
	columns map[string]any   // managed columns without references, as plan has them
	refs    map[string][]ref // managed columns that refer to other rows
	parents []membership     // whose columns refer to this row
	uuid    string           // of the row it is, or the name under which it is inserted
	old     model.Model      // what is there; nil: insert
}

// newRecord reads a plan.Row by its field tags.
func newRecord(key plan.Key, row plan.Row, hasExternalIDs bool) *record {
	r := &record{key: key, table: row.Table(), id: row.ID(), columns: map[string]any{}, refs: map[string][]ref{}}
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		tag, value := v.Type().Field(i).Tag, v.Field(i).Interface()
		column, target, parent := tag.Get("ovsdb"), tag.Get("ref"), tag.Get("parent")
		switch {
		case parent != "":
			table, col := splitParent(parent)
			for _, name := range names(value) {
				r.parents = append(r.parents, membership{ref{table, name}, col})
			}
		case target != "":
			r.refs[column] = []ref{}
			for _, name := range names(value) {
				r.refs[column] = append(r.refs[column], ref{target, name})
			}
		case column != "":
			r.columns[column] = value
		}
	}
	r.name, _ = r.columns["name"].(string)
	if hasExternalIDs {
		ids := map[string]string{ownerID: key.String()}
		if r.id != r.name {
			ids[rowID] = r.id
		}
		planned, _ := r.columns["external_ids"].(map[string]string)
		for k, v := range planned {
			ids[k] = v
		}
		r.columns["external_ids"] = ids
	}
	return r
}

func names(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	}
	return nil
}

// desired returns the record as a model of its table, and pointers to the
// fields of it that are managed, by column.
func (r *record) desired(db model.DatabaseModel, resolve func(ref) string) (model.Model, map[string]any, error) {
	m, err := db.NewModel(r.table)
	if err != nil {
		return nil, nil, err
	}
	fields := map[string]any{}
	set := func(column string, value any) error {
		f, ok := fieldOf(m, column)
		if !ok {
			return fmt.Errorf("table %s has no column %q", r.table, column)
		}
		assign(f, value)
		fields[column] = f.Addr().Interface()
		return nil
	}
	for column, value := range r.columns {
		if err := set(column, value); err != nil {
			return nil, nil, err
		}
	}
	for column, refs := range r.refs {
		uuids := []string{}
		for _, target := range refs {
			uuids = append(uuids, resolve(target))
		}
		if err := set(column, uuids); err != nil {
			return nil, nil, err
		}
	}
	return m, fields, nil
}

// fieldOf returns the field of a model that holds a column.
func fieldOf(m model.Model, column string) (reflect.Value, bool) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("ovsdb") == column {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// assign sets a model's field to a plan's value; the zero value of an optional
// column is nil.
func assign(f reflect.Value, value any) {
	v := reflect.ValueOf(value)
	if f.Kind() != reflect.Pointer {
		f.Set(v.Convert(f.Type()))
		return
	}
	if v.IsZero() {
		f.SetZero()
		return
	}
	p := reflect.New(f.Type().Elem())
	p.Elem().Set(v.Convert(p.Elem().Type()))
	f.Set(p)
}

// sameColumn compares a column's values of two models of one table: sets
// without order, nil as empty.
func sameColumn(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Slice:
		x, okx := a.Interface().([]string)
		y, oky := b.Interface().([]string)
		if !okx || !oky {
			return reflect.DeepEqual(a.Interface(), b.Interface())
		}
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	case reflect.Map:
		return a.Len() == b.Len() && (a.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface()))
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

func uuidOf(m model.Model) string {
	f, _ := fieldOf(m, "_uuid")
	return f.String()
}

func externalIDs(m model.Model) map[string]string {
	f, ok := fieldOf(m, "external_ids")
	if !ok {
		return nil
	}
	ids, _ := f.Interface().(map[string]string)
	return ids
}

func nameOf(m model.Model) string {
	f, ok := fieldOf(m, "name")
	if !ok {
		return ""
	}
	return f.String()
}

// rowsWhere returns copies of the rows of a table whose column equals a
// string, or, if it is a map, includes the pair.
func rowsWhere(c *cache.TableCache, table string, condition ovsdb.Condition) (map[string]model.Model, error) {
	t := c.Table(table)
	if t == nil {
		return nil, fmt.Errorf("table %s is not monitored", table)
	}
	return t.RowsByCondition([]ovsdb.Condition{condition})
}
