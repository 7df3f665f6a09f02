package nb

import (
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// This file reads struct tags, once for each type, because reading them for every row would cost
// more than the database. Two kinds of structs have tags:
//
//   - The models of libovsdb: their layouts map each column to the index of its field.
//   - The rows of package plan: their shapes have the meaning of each field.

// layouts has the layouts of models, by type.
var layouts = func() *layoutTable {
	t := &layoutTable{}
	t.all.Store(&map[reflect.Type]map[string]int{})

	for _, m := range models() {
		t.learn(reflect.TypeOf(m).Elem())
	}

	return t
}()

// layoutTable has the layout of each model type: the index of the field, by column. It is read
// without a lock, and replaced as a whole. A type is added when a database has another schema
// (fit.go).
type layoutTable struct {
	mu  sync.Mutex // held by writers
	all atomic.Pointer[map[reflect.Type]map[string]int]
}

// learn adds the layout of a struct type with the tags of libovsdb.
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

// layoutOf returns the layout of a struct type, or nil if it was not learned.
func (t *layoutTable) layoutOf(row reflect.Type) map[string]int { return (*t.all.Load())[row] }

// shapes has the shapes of the plan.Row types, by type.
var shapes = func() map[reflect.Type]shape {
	out := map[reflect.Type]shape{}
	for _, t := range plan.Types() {
		out[reflect.TypeOf(t)] = readShape(t)
	}

	return out
}()

// tables has the shapes of the plan.Row types, by table.
var tables = func() map[string]shape {
	out := map[string]shape{}
	for _, t := range plan.Types() {
		out[t.Table()] = shapes[reflect.TypeOf(t)]
	}

	return out
}()

// children has, for each table, its columns that refer to planned rows as children: the inverse of
// shape.parents.
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

// child is a column, and the table of the children that it refers to.
type child struct{ column, table string }

// shape describes the rows of a table as plans have them, by the struct tags of a plan.Row type.
type shape struct {
	table   string
	hasIDs  bool     // the table has external_ids
	columns []string // set by plans
	parents []string // the columns of parents, as Table.column, that refer to rows of the table
	fields  []field
}

// field has the index and the tags of one field of a plan.Row struct. A missing tag is "".
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

// fieldOf returns the field of a model for a column, or false if the model lacks the column. It can
// be set, because a model is a pointer.
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
