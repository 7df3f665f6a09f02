package nb

import (
	"reflect"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// parentsOf returns the columns, as Table.column, that refer to rows of a table.
func parentsOf(table string) []string { return tagged(table, "parent") }

// columnsOf returns the columns of a table that plans say something of.
func columnsOf(table string) []string { return tagged(table, "ovsdb") }

func tagged(table, tag string) []string {
	var out []string
	for _, t := range plan.Types() {
		if t.Table() != table {
			continue
		}
		v := reflect.TypeOf(t)
		for i := range v.NumField() {
			if value := v.Field(i).Tag.Get(tag); value != "" {
				out = append(out, value)
			}
		}
	}
	return out
}
