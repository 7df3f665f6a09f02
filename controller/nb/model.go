package nb

import (
	"cmp"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// Keys of external_ids.
const (
	ownerID = "ovn-ebpf.io/owner" // the plan.Key of the row's owner
	rowID   = "ovn-ebpf.io/id"    // the plan.Row ID, if it is not the name
)

// models returns a generated model, of package ovsdb/nb, for each table of a plan.Row type. The
// table may have fewer columns in the schema of a database (fit.go).
func models() map[string]model.Model {
	return map[string]model.Model{
		nbmodel.LogicalRouterTable:            &nbmodel.LogicalRouter{},
		nbmodel.LogicalRouterPortTable:        &nbmodel.LogicalRouterPort{},
		nbmodel.GatewayChassisTable:           &nbmodel.GatewayChassis{},
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
// that identify the owner, and those that refer to our rows. The table may lack some of them:
// monitorOptions leaves these out.
func monitored(table string) []string {
	out := append([]string{"external_ids", "name"}, tables[table].columns...)
	for _, s := range tables {
		for _, parent := range s.parents {
			if parentTable, column := splitParent(parent); parentTable == table {
				out = append(out, column)
			}
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// portColumn is the column of Static_MAC_Binding that identifies the owner of a row. The table has
// no external_ids, so a row belongs to the owner of its logical port.
const portColumn = "logical_port"

// ownedByPort reports whether rows of the table belong to the owner of their port.
func ownedByPort(table string) bool { return table == nbmodel.StaticMACBindingTable }

// ownerOf returns the key of a row's owner as text, or "" for a row without one. The text may be
// malformed, because other clients may write external_ids, too.
func ownerOf(table string, row model.Model) string {
	if !ownedByPort(table) {
		return externalIDs(row)[ownerID]
	}

	port, _ := fieldOf(row, portColumn)
	if key, ok := plan.PortOwner(port.String()); ok {
		return key.String()
	}

	return ""
}

// idOf returns the plan.Row.ID of a row in the database.
func idOf(table string, row model.Model) string {
	if !ownedByPort(table) {
		return cmp.Or(externalIDs(row)[rowID], nameOf(row))
	}

	port, _ := fieldOf(row, portColumn)
	ip, _ := fieldOf(row, "ip")

	return plan.StaticMACBinding{Port: port.String(), IP: ip.String()}.ID()
}
