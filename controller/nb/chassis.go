package nb

import (
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// Chassis returns the chassis that the owner's routers are bound to, or "" if there is none. After
// the deletion of a node it is the only record of the node's chassis.
func (d *DB) Chassis(key plan.Key) (string, error) {
	conn, err := d.client()
	if err != nil {
		return "", err
	}
	cache := conn.Cache()
	if cache == nil {
		return "", ErrNotConnected
	}
	rows, err := rowsOf(cache, nbmodel.LogicalRouterTable, key.String())
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		f, ok := fieldOf(row, "options")
		if !ok {
			continue
		}
		if options, _ := f.Interface().(map[string]string); options["chassis"] != "" {
			return options["chassis"], nil
		}
	}
	return "", nil
}
