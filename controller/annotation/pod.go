package annotation

import (
	"fmt"
	"net"
	"net/netip"
)

// podJSON has the singular keys too: older readers know only those.
type podJSON struct {
	Addresses []netip.Prefix `json:"ip_addresses"`
	MAC       string         `json:"mac_address"`
	Gateways  []netip.Addr   `json:"gateway_ips,omitempty"`
	Address   string         `json:"ip_address,omitempty"`
	Gateway   string         `json:"gateway_ip,omitempty"`
	Role      string         `json:"role,omitempty"`
}

// FormatPod is the value of PodNetworks.
func FormatPod(p Pod) string {
	v := podJSON{Addresses: p.Addresses, MAC: p.MAC.String(), Gateways: p.Gateways, Role: "primary"}
	if len(p.Addresses) == 1 {
		v.Address = p.Addresses[0].String()
	}
	if len(p.Gateways) == 1 {
		v.Gateway = p.Gateways[0].String()
	}
	return encode(map[string]podJSON{defaultNetwork: v})
}

// ParsePod returns the pod's interface on the default network.
func ParsePod(annotations map[string]string) (Pod, error) {
	m := map[string]podJSON{}
	if err := get(annotations, PodNetworks, &m); err != nil {
		return Pod{}, err
	}
	v, ok := m[defaultNetwork]
	if !ok || len(v.Addresses) == 0 {
		return Pod{}, fmt.Errorf("parse annotation %s: no addresses of network %q", PodNetworks, defaultNetwork)
	}
	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return Pod{}, fmt.Errorf("parse annotation %s: mac_address: %w", PodNetworks, err)
	}
	return Pod{Addresses: v.Addresses, MAC: mac, Gateways: v.Gateways}, nil
}
