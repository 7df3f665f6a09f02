package nb

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// ref names a row as plans do: by table and name, or by plan.Row ID in tables without names.
type ref struct{ table, name string }

func (r ref) String() string { return fmt.Sprintf("%s %q", r.table, r.name) }

// membership says that a column of a parent must refer to a row.
type membership struct {
	parent ref
	column string
}

// record is a planned row with its state in the database. newRecord fills all fields but uuid and
// old.
type record struct {
	key     plan.Key // of the owner
	table   string
	name    string           // "" in tables without names
	id      string           // the plan.Row ID
	columns map[string]any   // columns without references, with the planned values
	refs    map[string][]ref // columns that refer to other rows
	parents []membership     // columns of other rows that must refer to this row
	access  plan.Access      // port groups that only allow traffic: see mayJoinLater
	joined  int              // port groups of its own namespace that a new port joins now: see joinsLater
	uuid    string           // of the existing row, or the name of the new one in the transaction
	old     model.Model      // the existing row; nil: insert
}

// newRecord returns the record of a planned row. The tags of a field say which part of the record
// it becomes. plan.StaticRoute has an example of each:
//
//	Router parent:"Logical_Router.static_routes"  parents: the router's column refers to the row
//	BFD    ovsdb:"bfd" ref:"BFD"                  refs: the column refers to a row of BFD
//	Prefix ovsdb:"ip_prefix"                      columns: the column has this value
//
// Fields without tags are not columns.
func newRecord(key plan.Key, row plan.Row) *record {
	v := reflect.ValueOf(row)
	s := shapes[v.Type()]

	r := &record{
		key:     key,
		table:   s.table,
		id:      row.ID(),
		columns: make(map[string]any, len(s.columns)+1),
		refs:    map[string][]ref{},
	}
	for _, f := range s.fields {
		value := v.Field(f.index).Interface()
		switch {
		case f.parentTable != "":
			for _, name := range refNames(value) {
				if name != "" {
					r.parents = append(r.parents, membership{ref{f.parentTable, name}, f.parentOfColumn})
				}
			}
		case f.target != "":
			r.refs[f.column] = []ref{}

			for _, name := range refNames(value) {
				if name != "" {
					r.refs[f.column] = append(r.refs[f.column], ref{f.target, name})
				}
			}
		case f.column != "":
			r.columns[f.column] = value
		}
	}

	if port, ok := row.(plan.LogicalSwitchPort); ok {
		r.access = port.Access
	}

	r.name, _ = r.columns["name"].(string)
	if s.hasIDs {
		r.columns["external_ids"] = r.externalIDs()
	}

	return r
}

// mayJoinLater reports whether the row may be written without this membership: it is in a port group
// that only allows traffic. The rows that isolate the port are in others.
func (r *record) mayJoinLater(p membership) bool {
	_, allows := r.access[p.parent.name]
	return allows && p.parent.table == nbmodel.PortGroupTable
}

// externalIDs returns the planned external_ids and those that identify the row. A planned one would
// replace an identifying one, but plans use other keys.
func (r *record) externalIDs() map[string]string {
	planned, _ := r.columns["external_ids"].(map[string]string)
	ids := make(map[string]string, len(planned)+2)
	ids[ownerID] = r.key.String()

	if r.id != r.name {
		ids[rowID] = r.id
	}

	maps.Copy(ids, planned)

	return ids
}

// refNames returns the names in a field that refers to one row or several. An empty name refers to
// no row.
func refNames(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	}

	return nil
}

// desired returns the record as a model of its table, and the names of the columns that are set in
// it: those of the plan that the schema has. resolve returns the UUID of a row.
func (r *record) desired(db model.DatabaseModel, resolve func(ref) string) (model.Model, []string, error) {
	m, err := db.NewModel(r.table)
	if err != nil {
		return nil, nil, err
	}

	columns := make([]string, 0, len(r.columns)+len(r.refs))

	set := func(column string, value any) {
		if f, ok := fieldOf(m, column); ok {
			assign(f, value)

			columns = append(columns, column)
		}
	}

	for column, value := range r.columns {
		set(column, value)
	}

	for column, refs := range r.refs {
		uuids := []string{}
		for _, target := range refs {
			uuids = append(uuids, resolve(target))
		}

		set(column, uuids)
	}

	return m, columns, nil
}

// assign sets a model's field to a planned value. The field of an optional column is a pointer,
// which is nil for the zero value. The planned value of such a column may be a list of at most one
// reference.
func assign(f reflect.Value, value any) {
	v := reflect.ValueOf(value)
	if f.Kind() != reflect.Pointer {
		f.Set(v.Convert(f.Type()))
		return
	}

	if v.Kind() == reflect.Slice {
		if v.Len() == 0 {
			f.SetZero()
			return
		}

		v = v.Index(0)
	}

	if v.IsZero() {
		f.SetZero()
		return
	}

	p := reflect.New(f.Type().Elem())
	p.Elem().Set(v.Convert(p.Elem().Type()))
	f.Set(p)
}

// sameColumn reports whether a column has equal values in two models of the same table. The order
// of sets of strings, which include references, does not count, and nil equals empty. Plans write
// no other sets.
func sameColumn(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Slice:
		x, okx := a.Interface().([]string)

		y, oky := b.Interface().([]string)
		if !okx || !oky {
			return reflect.DeepEqual(a.Interface(), b.Interface())
		}

		if len(x) != len(y) {
			return false
		}

		return slices.Equal(x, y) || // mostly true, and cheaper than sorting
			slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	case reflect.Map:
		x, okx := a.Interface().(map[string]string)

		y, oky := b.Interface().(map[string]string)
		if !okx || !oky {
			return a.Len() == b.Len() && (a.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface()))
		}

		return maps.Equal(x, y)
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}
