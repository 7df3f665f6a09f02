package nb

import (
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

const (
	ownerID = "ovn-ebpf.io/owner"
	rowID   = "ovn-ebpf.io/id"
)

// models returns the generated models of the tables of all plan.Row types.
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

// monitored returns the columns of a table that this package reads: those that plans write, those
// that identify the owner, and those that refer to our rows.
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
