package nb

import (
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

const (
	ownerID = "ovn-ebpf.io/owner"
	rowID   = "ovn-ebpf.io/id"
)

// models returns the generated model of each table that plan.Row types are rows of.
func models() map[string]model.Model {
	return map[string]model.Model{
		nbmodel.LogicalRouterTable:            &nbmodel.LogicalRouter{},
		nbmodel.LogicalRouterPortTable:        &nbmodel.LogicalRouterPort{},
		nbmodel.LogicalRouterPolicyTable:      &nbmodel.LogicalRouterPolicy{},
		nbmodel.LogicalRouterStaticRouteTable: &nbmodel.LogicalRouterStaticRoute{},
		nbmodel.LogicalSwitchTable:            &nbmodel.LogicalSwitch{},
		nbmodel.LogicalSwitchPortTable:        &nbmodel.LogicalSwitchPort{},
		nbmodel.LoadBalancerTable:             &nbmodel.LoadBalancer{},
		nbmodel.LoadBalancerGroupTable:        &nbmodel.LoadBalancerGroup{},
		nbmodel.NATTable:                      &nbmodel.NAT{},
		nbmodel.StaticMACBindingTable:         &nbmodel.StaticMACBinding{},
		nbmodel.AddressSetTable:               &nbmodel.AddressSet{},
		nbmodel.BFDTable:                      &nbmodel.BFD{},
		nbmodel.PortGroupTable:                &nbmodel.PortGroup{},
		nbmodel.ACLTable:                      &nbmodel.ACL{},
		nbmodel.MeterTable:                    &nbmodel.Meter{},
		nbmodel.MeterBandTable:                &nbmodel.MeterBand{},
	}
}

// monitorOptions ask for the columns that Commit compares, and for no other:
// northd writes "up" to every port.
func monitorOptions() []client.MonitorOption {
	var out []client.MonitorOption
	for table, m := range models() {
		var fields []any
		for _, column := range monitored(table) {
			if f, ok := fieldOf(m, column); ok {
				fields = append(fields, f.Addr().Interface())
			}
		}
		out = append(out, client.WithTable(m, fields...))
	}
	return out
}

// monitored are the columns of a table that anything here reads: those that
// plans write, those that say whose a row is, those that refer to rows of ours.
func monitored(table string) []string {
	out := append([]string{"external_ids", "name"}, tables[table].columns...)
	for _, s := range tables {
		for _, parent := range s.parents {
			if of, column := splitParent(parent); of == table {
				out = append(out, column)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// clientModel is the generated model with the indexes that Commit uses.
func clientModel() (model.ClientDBModel, error) {
	m, err := nbmodel.FullDatabaseModel()
	if err != nil {
		return m, err
	}
	owner := model.ClientIndex{Columns: []model.ColumnKey{{Column: "external_ids", Key: ownerID}}}
	name := model.ClientIndex{Columns: []model.ColumnKey{{Column: "name"}}}
	indexes := map[string][]model.ClientIndex{}
	for table, row := range models() {
		if _, ok := fieldOf(row, "external_ids"); ok {
			indexes[table] = append(indexes[table], owner)
		}
		if _, ok := fieldOf(row, "name"); ok {
			indexes[table] = append(indexes[table], name)
		}
		if ownedByPort(table) {
			indexes[table] = append(indexes[table], model.ClientIndex{Columns: []model.ColumnKey{{Column: portColumn}}})
		}
	}
	m.SetIndexes(indexes)
	return m, nil
}
