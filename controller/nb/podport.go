package nb

import (
	"net"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// PodPort is a pod's port in the database. A new leader recovers the addresses of pods from it.
type PodPort struct {
	Pod       plan.Key
	UID       string           // of the pod; "" if missing
	MAC       net.HardwareAddr // nil if missing or malformed
	Addresses []netip.Addr     // malformed ones are left out
}

// PodPorts returns the ports of all pods, in undefined order.
func (d *DB) PodPorts() ([]PodPort, error) {
	conn, err := d.client()
	if err != nil {
		return nil, err
	}

	cache := conn.Cache()
	if cache == nil {
		return nil, ErrNotConnected
	}

	table := cache.Table(nbmodel.LogicalSwitchPortTable)
	if table == nil {
		return nil, nil // not in the schema
	}

	var out []PodPort

	for _, row := range table.RowsShallow() {
		k, err := plan.ParseKey(externalIDs(row)[ownerID])
		if err == nil && k.Kind == plan.KindPod {
			options := valueOf[map[string]string](row, "options")
			out = append(out, podPort(k, options, valueOf[[]string](row, "addresses")))
		}
	}

	return out, nil
}

// valueOf returns the value of a column. The row's type is fitted to the database's schema, so with
// an older OVN it is not nbmodel.LogicalSwitchPort.
func valueOf[T any](row model.Model, name string) (value T) {
	if field, ok := fieldOf(row, name); ok {
		value, _ = field.Interface().(T)
	}

	return value
}

// podPort reads a row of Logical_Switch_Port. Each element of its column addresses is a MAC address
// and IP addresses, separated by spaces.
func podPort(k plan.Key, options map[string]string, addresses []string) PodPort {
	p := PodPort{Pod: k, UID: options["iface-id-ver"]}

	for _, text := range addresses {
		for i, field := range strings.Fields(text) {
			if i == 0 {
				p.MAC, _ = net.ParseMAC(field) // nil if malformed
			} else if a, err := netip.ParseAddr(field); err == nil {
				p.Addresses = append(p.Addresses, a)
			}
		}
	}

	return p
}
