package nb

import (
	"reflect"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// parentsOf returns the columns, as Table.column, that refer to rows of a table.
func parentsOf(table string) []string {
	var out []string
	for _, t := range plan.Types() {
		if t.Table() != table {
			continue
		}
		v := reflect.TypeOf(t)
		for i := range v.NumField() {
			if p := v.Field(i).Tag.Get("parent"); p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}
