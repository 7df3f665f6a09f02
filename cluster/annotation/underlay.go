package annotation

import (
	"fmt"
	"net"
	"net/netip"
)

// Annotation keys of underlay mode, on Nodes. Each comment begins with the writer, and has an
// example of the value.
const (
	// agent: {"vif":"…","mac":"fa:16:…","address":"10.0.0.11","mtu":1442}
	Underlay = "ovn-ebpf.io/underlay"
	// an operator: "26", length of the node's pod subnet
	UnderlayPrefixLength = "ovn-ebpf.io/underlay-prefix-length"
)

// VIF is the virtual NIC by which a node's VM is attached to its OpenStack network.
type VIF struct {
	ID      string           // UUID of its Neutron port; "" if the agent does not know it
	MAC     net.HardwareAddr // of the NIC
	Address netip.Addr       // the node's, on the NIC
	MTU     int              // of the NIC, bytes
	Ports   int              // number of ports that the node requests; 0: by its capacity
}

// vifJSON is the JSON form of VIF.
type vifJSON struct {
	ID      string     `json:"vif,omitempty"`
	MAC     string     `json:"mac"`
	Address netip.Addr `json:"address"`
	MTU     int        `json:"mtu"`
	Ports   int        `json:"ports,omitempty"`
}

// FormatUnderlay returns the value of Underlay.
func FormatUnderlay(v VIF) string {
	return encode(vifJSON{ID: v.ID, MAC: v.MAC.String(), Address: v.Address, MTU: v.MTU, Ports: v.Ports})
}

// ParseUnderlay returns the node's VIF. MAC, address and MTU are always set.
func ParseUnderlay(annotations map[string]string) (VIF, error) {
	var v vifJSON
	if err := get(annotations, Underlay, &v); err != nil {
		return VIF{}, err
	}

	mac, err := net.ParseMAC(v.MAC)
	switch {
	case err != nil:
		return VIF{}, fmt.Errorf("parse annotation %s: mac: %w", Underlay, err)
	case len(mac) != 6:
		return VIF{}, fmt.Errorf("parse annotation %s: mac %s: want 6 bytes", Underlay, v.MAC)
	case !v.Address.IsValid() || v.Address.Zone() != "":
		return VIF{}, fmt.Errorf("parse annotation %s: no address", Underlay)
	case v.MTU < 576 || v.MTU > 65535:
		return VIF{}, fmt.Errorf("parse annotation %s: mtu %d: want 576 to 65535", Underlay, v.MTU)
	case v.Ports < 0:
		return VIF{}, fmt.Errorf("parse annotation %s: ports %d: want 0 or more", Underlay, v.Ports)
	}

	return VIF{ID: v.ID, MAC: mac, Address: v.Address.Unmap(), MTU: v.MTU, Ports: v.Ports}, nil
}

// ParseUnderlayPrefixLength returns the prefix length that an operator has set for the node's pod
// subnet. It may be out of range.
func ParseUnderlayPrefixLength(annotations map[string]string) (int, error) {
	var n int
	if err := get(annotations, UnderlayPrefixLength, &n); err != nil {
		return 0, err
	}

	return n, nil
}
