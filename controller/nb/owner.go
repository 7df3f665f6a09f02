package nb

import (
	"cmp"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// portColumn identifies the owner of a row in tables without external_ids: the row belongs to the
// owner of its port.
const portColumn = "logical_port"

func ownedByPort(table string) bool { return table == nbmodel.StaticMACBindingTable }

// ownerOf returns the key of a row's owner as text, or "".
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
