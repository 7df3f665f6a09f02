package annotation

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// podJSON is the JSON form of Pod. It also has the keys for one address and one gateway, because
// older readers know only those.
type podJSON struct {
	Addresses []netip.Prefix `json:"ip_addresses"`
	MAC       string         `json:"mac_address"`
	Gateways  []netip.Addr   `json:"gateway_ips,omitempty"`
	Address   string         `json:"ip_address,omitempty"`
	Gateway   string         `json:"gateway_ip,omitempty"`
	Role      string         `json:"role,omitempty"`
}

// FormatPod returns the value of PodNetworks.
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

// firstPodJSON is the JSON form of FirstPod. It has one address, because the first generation had
// IPv4 only.
type firstPodJSON struct {
	Address netip.Prefix `json:"ip_address"`
	MAC     string       `json:"mac_address"`
	Gateway netip.Addr   `json:"gateway_ip"`
}

// FormatFirstPod returns the value of FirstPod, with the IPv4 address, or else the first address.
// The pod must have an address.
func FormatFirstPod(p Pod) string {
	i := max(0, slices.IndexFunc(p.Addresses, func(a netip.Prefix) bool { return a.Addr().Is4() }))

	v := firstPodJSON{Address: p.Addresses[i], MAC: p.MAC.String()}
	for _, g := range p.Gateways {
		if g.Is4() == v.Address.Addr().Is4() {
			v.Gateway = g
		}
	}

	return encode(v)
}

// parseFirstPod returns the value of FirstPod.
func parseFirstPod(annotations map[string]string) (Pod, error) {
	var v firstPodJSON
	if err := get(annotations, FirstPod, &v); err != nil {
		return Pod{}, err
	}

	if !v.Address.IsValid() {
		return Pod{}, fmt.Errorf("parse annotation %s: no ip_address", FirstPod)
	}

	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return Pod{}, fmt.Errorf("parse annotation %s: mac_address: %w", FirstPod, err)
	}

	p := Pod{Addresses: []netip.Prefix{v.Address}, MAC: mac}
	if v.Gateway.IsValid() {
		p.Gateways = []netip.Addr{v.Gateway}
	}

	return p, nil
}

// ParsePod returns the pod's interface on the default network. If PodNetworks is not set, it reads
// FirstPod.
func ParsePod(annotations map[string]string) (Pod, error) {
	m := map[string]podJSON{}

	err := get(annotations, PodNetworks, &m)
	if errors.Is(err, ErrNotSet) {
		if p, firstErr := parseFirstPod(annotations); !errors.Is(firstErr, ErrNotSet) {
			return p, firstErr
		}
	}

	if err != nil {
		return Pod{}, err
	}

	v, ok := m[defaultNetwork]
	if !ok || len(v.Addresses) == 0 {
		return Pod{}, fmt.Errorf("parse annotation %s: no addresses of network %q",
			PodNetworks, defaultNetwork)
	}

	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return Pod{}, fmt.Errorf("parse annotation %s: mac_address: %w", PodNetworks, err)
	}

	return Pod{Addresses: v.Addresses, MAC: mac, Gateways: v.Gateways}, nil
}

// DerivedMAC derives a port's MAC address from its first IP address. For IPv4 it is 0a:58 and the
// four bytes of the address, as in ovn-kubernetes. For IPv6 it is 0a:58 and the last four bytes of
// the SHA-256 of the address's text. ovn-kubernetes uses the first four bytes.
func DerivedMAC(addr netip.Addr) net.HardwareAddr {
	mac := net.HardwareAddr{0x0a, 0x58, 0, 0, 0, 0}

	if addr.Is4() {
		b := addr.As4()
		copy(mac[2:], b[:])

		return mac
	}

	sum := sha256.Sum256([]byte(addr.String()))
	copy(mac[2:], sum[len(sum)-4:])

	return mac
}
