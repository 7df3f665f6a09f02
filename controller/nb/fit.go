package nb

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

const database = "OVN_Northbound"

// fitting is what of a database can be used: the schema may be older or newer than that
// of the generated models.
type fitting struct {
	model   model.ClientDBModel
	missing []string // what plans use and the schema lacks, as Table or Table.column, sorted
	tables  map[string]model.Model
	version string // of the schema
}

// fit finds out what of the models a schema has: of each table the generated type, or,
// where the schema has fewer columns or others of the name, that without them.
func fit(schema ovsdb.DatabaseSchema) (*fitting, error) {
	f := &fitting{tables: map[string]model.Model{}, version: schema.Version}
	for table, m := range models() {
		columns := schema.Table(table)
		if columns == nil {
			f.missing = append(f.missing, table)
			continue
		}
		row, gone := fitRow(columns, reflect.TypeOf(m).Elem())
		for _, column := range gone {
			if slices.Contains(monitored(table), column) {
				f.missing = append(f.missing, table+"."+column)
			}
		}
		f.tables[table] = reflect.New(row).Interface()
	}
	slices.Sort(f.missing)
	var err error
	if f.model, err = model.NewClientDBModel(database, f.tables); err != nil {
		return nil, err
	}
	f.model.SetIndexes(f.indexes())
	return f, nil
}

// fitRow returns the type without the fields that the schema has no column for, and
// those columns.
func fitRow(schema *ovsdb.TableSchema, t reflect.Type) (row reflect.Type, gone []string) {
	var fields []reflect.StructField
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("ovsdb")
		if column := schema.Column(name); column == nil || ovsdb.NativeType(column) != t.Field(i).Type {
			gone = append(gone, name)
			continue
		}
		fields = append(fields, t.Field(i))
	}
	if len(gone) == 0 {
		return t, nil // with its methods, which are quick
	}
	row = reflect.StructOf(fields)
	layouts.learn(row)
	return row, gone
}

// indexes are those that Commit uses.
func (f *fitting) indexes() map[string][]model.ClientIndex {
	owner := model.ColumnKey{Column: "external_ids", Key: ownerID}
	out := map[string][]model.ClientIndex{}
	for table, row := range f.tables {
		for _, key := range []model.ColumnKey{owner, {Column: "name"}, {Column: portColumn}} {
			if key.Column == portColumn && !ownedByPort(table) {
				continue
			}
			if _, ok := fieldOf(row, key.Column); ok {
				out[table] = append(out[table], model.ClientIndex{Columns: []model.ColumnKey{key}})
			}
		}
	}
	return out
}

// monitor asks for the columns that Commit compares, and for no other: northd
// writes "up" to every port.
func (f *fitting) monitor() []client.MonitorOption {
	var out []client.MonitorOption
	for _, table := range slices.Sorted(maps.Keys(f.tables)) {
		var fields []any
		for _, column := range monitored(table) {
			if field, ok := fieldOf(f.tables[table], column); ok {
				fields = append(fields, field.Addr().Interface())
			}
		}
		out = append(out, client.WithTable(f.tables[table], fields...))
	}
	return out
}

// fit asks for the schema, on a connection of its own: the client's model is given
// before it connects.
func (d *DB) fit(ctx context.Context, opts []client.Option) (*fitting, error) {
	none, err := model.NewClientDBModel(database, nil)
	if err != nil {
		return nil, err
	}
	conn, err := client.NewOVSDBClient(none, opts...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.Connect(ctx); err != nil {
		return nil, err
	}
	f, err := fit(conn.Schema())
	if err != nil {
		return nil, fmt.Errorf("fit models to schema: %w", err)
	}
	return f, nil
}

// without says what does not work when a table is missing. Of other tables and of
// columns it is the feature that they are named after.
var without = map[string]string{
	nbmodel.StaticMACBindingTable: "on nodes in shared gateway mode Services neither reach the node's own host nor are reached from it, and nodes without a gateway do not notice that one is gone (OVN 22.06 has it)",
}

// say logs what the schema lacks, if it is not what was said last.
func (d *DB) say(f *fitting) {
	d.mu.Lock()
	same := slices.Equal(d.missing, f.missing)
	d.missing = f.missing
	d.mu.Unlock()
	if same {
		return
	}
	for _, what := range f.missing {
		d.log.Warn("northbound schema has no such table or column", "schema", f.version, "missing", what, "without", without[what])
	}
}

// Missing returns what plans use and the database's schema lacks, as Table or
// Table.column: as of the last connection.
func (d *DB) Missing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missing
}
