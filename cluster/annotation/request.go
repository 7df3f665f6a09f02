package annotation

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// DefaultNetwork is the annotation by which users request addresses for pods, as in
// ovn-kubernetes. The Network Plumbing Working Group has defined it for the pod's default
// network. The value is an object, or a list with one object:
// {"name":"default","namespace":"ovn-kubernetes","ips":["10.244.0.9"],"mac":"02:00:00:00:00:09"}
// Its short form, a name, requests no address.
const DefaultNetwork = "v1.multus-cni.io/default-network"

// Request has the addresses that a pod requests. The controller chooses those that are missing.
type Request struct {
	Addresses []netip.Addr // at most one a family
	MAC       net.HardwareAddr
}

type requestJSON struct {
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
}

// FormatRequest returns a value of DefaultNetwork.
func FormatRequest(r Request) string {
	v := map[string]any{"name": defaultNetwork, "namespace": "ovn-kubernetes", "ips": r.Addresses}
	if r.MAC != nil {
		v["mac"] = r.MAC.String()
	}

	return encode(v)
}

// ParseRequest returns the addresses that the pod requests, or the zero Request if it requests
// none. Addresses may have a prefix length, which is ignored.
func ParseRequest(annotations map[string]string) (Request, error) {
	text := strings.TrimSpace(annotations[DefaultNetwork])
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return Request{}, nil
	}

	fail := func(err error) (Request, error) {
		return Request{}, fmt.Errorf("parse annotation %s: %w", DefaultNetwork, err)
	}

	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}

	var list []requestJSON
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fail(err)
	}

	if len(list) != 1 {
		return fail(fmt.Errorf("%d networks, want 1", len(list)))
	}

	var r Request

	for _, s := range list[0].IPs {
		a, err := parseRequested(s)
		if err != nil {
			return fail(err)
		}

		for _, other := range r.Addresses {
			if other.Is4() == a.Is4() {
				return fail(fmt.Errorf("ips %s and %s are of one family", other, a))
			}
		}

		r.Addresses = append(r.Addresses, a)
	}

	if list[0].MAC != "" {
		mac, err := net.ParseMAC(list[0].MAC)
		if err != nil {
			return fail(fmt.Errorf("mac: %w", err))
		}

		if err := CheckMAC(mac); err != nil {
			return fail(fmt.Errorf("mac: %w", err))
		}

		r.MAC = mac
	}

	return r, nil
}

// parseRequested parses an address with or without a prefix length.
func parseRequested(s string) (netip.Addr, error) {
	text, _, _ := strings.Cut(s, "/")

	a, err := netip.ParseAddr(text)
	if err == nil && strings.Contains(s, "/") {
		_, err = netip.ParsePrefix(s)
	}

	if err != nil {
		return netip.Addr{}, fmt.Errorf("ips: %w", err)
	}

	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("ips: %s has a zone", a)
	}

	return a.Unmap(), nil
}

// CheckMAC returns an error unless mac is a unicast Ethernet address.
func CheckMAC(mac net.HardwareAddr) error {
	const ethernet = 6
	switch {
	case len(mac) != ethernet:
		return fmt.Errorf("%s is not an Ethernet address", mac)
	case mac[0]&1 != 0:
		return fmt.Errorf("%s is a multicast address", mac)
	case mac.String() == "00:00:00:00:00:00":
		return fmt.Errorf("%s is no address", mac)
	}

	return nil
}
