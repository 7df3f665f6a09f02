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

// A database may have an older or newer schema than the generated models, because OVN is upgraded
// at another time than this project. libovsdb refuses models with columns that the schema lacks. So
// for each connection, the schema is read first, and the models are fitted to it: tables and
// columns that the schema lacks are left out.

const database = "OVN_Northbound"

// usableSchema has the tables and columns that both the schema and the generated models have.
type usableSchema struct {
	model   model.ClientDBModel    // of these tables, for libovsdb
	tables  map[string]model.Model // a pointer to a zero row of each table
	missing []string               // used by plans but not in the schema, as Table or Table.column, sorted
	version string                 // of the schema
}

// fitModels compares the generated models with a schema. A table of which columns are missing, or
// have another type, gets a model without these columns.
func fitModels(schema ovsdb.DatabaseSchema) (*usableSchema, error) {
	f := &usableSchema{tables: map[string]model.Model{}, version: schema.Version}
	for table, m := range models() {
		columns := schema.Table(table)
		if columns == nil {
			f.missing = append(f.missing, table)
			continue
		}

		row, removed := fitRow(columns, reflect.TypeOf(m).Elem())
		for _, column := range removed {
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

// fitRow returns the struct type t without the fields whose column the schema lacks or has with
// another type, and the names of those columns.
func fitRow(schema *ovsdb.TableSchema, t reflect.Type) (row reflect.Type, removed []string) {
	var fields []reflect.StructField

	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("ovsdb")
		if column := schema.Column(name); column == nil || ovsdb.NativeType(column) != t.Field(i).Type {
			removed = append(removed, name)
			continue
		}

		fields = append(fields, t.Field(i))
	}

	if len(removed) == 0 {
		return t, nil // keeps its generated methods, which are fast
	}

	row = reflect.StructOf(fields)
	layouts.learn(row)

	return row, removed
}

// indexes returns the indexes of the cache that Commit uses: by owner, by name and by logical port
// (see lookup.go).
func (f *usableSchema) indexes() map[string][]model.ClientIndex {
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

// monitorOptions returns options for exactly the columns that Commit compares. Others are left
// out, for example "up", which northd writes to every port.
func (f *usableSchema) monitorOptions() []client.MonitorOption {
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

// readSchema reads the database's schema and fits the models to it. It uses a separate connection,
// because a client needs its model before it connects.
func (d *DB) readSchema(ctx context.Context, opts []client.Option) (*usableSchema, error) {
	noModels, err := model.NewClientDBModel(database, nil)
	if err != nil {
		return nil, err
	}

	conn, err := client.NewOVSDBClient(noModels, opts...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	if err := conn.Connect(ctx); err != nil {
		return nil, err
	}

	f, err := fitModels(conn.Schema())
	if err != nil {
		return nil, fmt.Errorf("fit models to schema: %w", err)
	}

	return f, nil
}

// consequences describes what does not work without a table, for the log. For other tables and
// columns the name already describes the feature.
var consequences = map[string]string{
	nbmodel.StaticMACBindingTable: "on nodes in shared gateway mode Services cannot reach the node's own host or be reached from it, and nodes without a gateway do not detect that a gateway has failed (requires OVN 22.06)",
}

// logMissing logs the missing tables and columns if they differ from the last call.
func (d *DB) logMissing(f *usableSchema) {
	d.mu.Lock()
	isKnown := slices.Equal(d.missing, f.missing)
	d.missing, d.forgetsUsed = f.missing, schemaForgetsUsed(f.version)
	d.mu.Unlock()

	if isKnown {
		return
	}

	for _, what := range f.missing {
		d.log.Warn("northbound schema has no such table or column",
			"schema", f.version, "missing", what, "without", consequences[what])
	}
}

// Missing returns the tables and columns that plans use and the schema of the last connection
// lacks, as Table or Table.column.
func (d *DB) Missing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.missing
}
