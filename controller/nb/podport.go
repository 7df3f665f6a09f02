package nb

import (
	"net"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// PodPort is a pod's port in the database.
type PodPort struct {
	Pod       plan.Key
	UID       string
	MAC       net.HardwareAddr // nil if missing or malformed
	Addresses []netip.Addr
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
		port, ok := row.(*nbmodel.LogicalSwitchPort)
		if !ok {
			continue
		}
		if k, err := plan.ParseKey(port.ExternalIDs[ownerID]); err == nil && k.Kind == plan.KindPod {
			out = append(out, podPort(k, port))
		}
	}
	return out, nil
}

func podPort(k plan.Key, row *nbmodel.LogicalSwitchPort) PodPort {
	p := PodPort{Pod: k, UID: row.Options["iface-id-ver"]}
	for _, text := range row.Addresses {
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
