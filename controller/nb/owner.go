package nb

import (
	"cmp"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// portColumn says whose a row is in tables without external_ids whose rows are
// of a port: such a row belongs to the port's owner.
const portColumn = "logical_port"

func ownedByPort(table string) bool { return table == nbmodel.StaticMACBindingTable }

// ownerOf returns the key, as text, of a row's owner, or "".
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

// idOf returns what plan.Row.ID says of a row that is in the database.
func idOf(table string, row model.Model) string {
	if !ownedByPort(table) {
		return cmp.Or(externalIDs(row)[rowID], nameOf(row))
	}
	port, _ := fieldOf(row, portColumn)
	ip, _ := fieldOf(row, "ip")
	return plan.StaticMACBinding{Port: port.String(), IP: ip.String()}.ID()
}
