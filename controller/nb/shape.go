package nb

import (
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// layouts maps columns to the fields of models. Reading the tags for every row would cost more
// than the database.
var layouts = func() *layoutTable {
	t := &layoutTable{}
	t.all.Store(&map[reflect.Type]map[string]int{})

	for _, m := range models() {
		t.learn(reflect.TypeOf(m).Elem())
	}

	return t
}()

// layoutTable is read without a lock. An entry is added when a database has another schema.
type layoutTable struct {
	mu  sync.Mutex // guards writes
	all atomic.Pointer[map[reflect.Type]map[string]int]
}

// learn adds the layout of a type.
func (t *layoutTable) learn(row reflect.Type) {
	t.mu.Lock()
	defer t.mu.Unlock()

	all := maps.Clone(*t.all.Load())
	all[row] = map[string]int{}

	for i := range row.NumField() {
		all[row][row.Field(i).Tag.Get("ovsdb")] = i
	}

	t.all.Store(&all)
}

func (t *layoutTable) layoutOf(row reflect.Type) map[string]int { return (*t.all.Load())[row] }

// shapes has the field tags of the plan.Row types, by type.
var shapes = func() map[reflect.Type]shape {
	out := map[reflect.Type]shape{}
	for _, t := range plan.Types() {
		out[reflect.TypeOf(t)] = readShape(t)
	}

	return out
}()

// tables has the shapes by table.
var tables = func() map[string]shape {
	out := map[string]shape{}
	for _, t := range plan.Types() {
		out[t.Table()] = shapes[reflect.TypeOf(t)]
	}

	return out
}()

// children has, for each table, the columns that refer to planned rows as children.
var children = func() map[string][]child {
	out := map[string][]child{}

	for _, t := range plan.Types() {
		for _, parent := range tables[t.Table()].parents {
			table, column := splitParent(parent)
			out[table] = append(out[table], child{column, t.Table()})
		}
	}

	return out
}()

// child is a column and the table that it refers to.
type child struct{ column, table string }

// shape describes how the rows of a table are planned.
type shape struct {
	table   string
	hasIDs  bool     // the table has external_ids
	columns []string // set by plans
	parents []string // the columns, as Table.column, that refer to rows of the table
	fields  []field
}

// field is one field of a plan.Row struct.
type field struct {
	index                       int
	column, target              string // the tags ovsdb and ref: the column, and the table that it refers to
	parentTable, parentOfColumn string // the tag parent: the column of the parent that refers to the row
}

// readShape reads the field tags of a plan.Row type.
func readShape(row plan.Row) shape {
	s := shape{table: row.Table()}
	if m := models()[row.Table()]; m != nil {
		_, s.hasIDs = fieldOf(m, "external_ids")
	}

	t := reflect.TypeOf(row)
	for i := range t.NumField() {
		tag := t.Field(i).Tag

		f := field{index: i, column: tag.Get("ovsdb"), target: tag.Get("ref")}
		if parent := tag.Get("parent"); parent != "" {
			s.parents = append(s.parents, parent)
			f.parentTable, f.parentOfColumn = splitParent(parent)
		}

		if f.column != "" {
			s.columns = append(s.columns, f.column)
		}

		s.fields = append(s.fields, f)
	}

	return s
}

// fieldOf returns the field of a model for a column.
func fieldOf(m model.Model, column string) (reflect.Value, bool) {
	v := reflect.ValueOf(m).Elem()

	i, ok := layouts.layoutOf(v.Type())[column]
	if !ok {
		return reflect.Value{}, false
	}

	return v.Field(i), true
}

// uuidOf returns a row's UUID.
func uuidOf(m model.Model) string {
	f, _ := fieldOf(m, "_uuid")
	return f.String()
}

// externalIDs returns a row's external_ids, or nil if its table has none.
func externalIDs(m model.Model) map[string]string {
	f, ok := fieldOf(m, "external_ids")
	if !ok {
		return nil
	}

	ids, _ := f.Interface().(map[string]string)

	return ids
}

// nameOf returns a row's name, or "" if its table has none.
func nameOf(m model.Model) string {
	f, ok := fieldOf(m, "name")
	if !ok {
		return ""
	}

	return f.String()
}
