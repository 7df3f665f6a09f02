package gateway

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// EncapAddress returns the default tunnel address before the gateway has read the node: a host
// address, IPv4 first. If the host still has the address that the last agent used, it returns that
// one. Without an address it returns the zero Addr. The host's addresses may still be where another
// layout or the boot put them, so it looks at the uplink and the bridge. In layout dedicated it
// takes them from the device of the default route, because the gateway router's own address cannot
// be used.
func EncapAddress(s Settings) (netip.Addr, error) {
	h, err := observe(s.Wiring, knownAddresses{})
	if err != nil {
		return netip.Addr{}, err
	}

	last, _ := newRunFile[addressing](s.RunDir, addressFile).read() // the gateway reports an error
	h.Known.InUse = addrsOf(last.Addresses)

	return encapAddress(h, s), nil
}

// encapAddress is the pure part of EncapAddress.
func encapAddress(h Host, s Settings) netip.Addr {
	var candidates []Settings // by where the addresses may be, the likeliest first

	switch s.Layout {
	case verdict.Dedicated:
		for _, r := range h.Defaults {
			onDevice := s.withAddressesOf(verdict.Direct)
			onDevice.Uplink, onDevice.Addresses = r.Device, nil
			candidates = append(candidates, onDevice)
		}
	case verdict.Bridged:
		candidates = []Settings{s, s.withAddressesOf(verdict.Direct)}
	default:
		candidates = []Settings{s, s.withAddressesOf(verdict.Bridged)}
	}

	for _, candidate := range candidates {
		n := nodeOf(h, candidate)
		for _, is4 := range []bool{true, false} {
			if a := n.Address(is4); a.IsValid() {
				return a
			}
		}
	}

	return netip.Addr{}
}

// withAddressesOf returns the settings for a host whose addresses are where the given layout has
// them, as before or during a move of the uplink. In layout bridged, the bridge is a device of the
// host.
func (s Settings) withAddressesOf(layout verdict.Layout) Settings {
	s.Layout = layout
	if layout == verdict.Bridged {
		s.NotHost = slices.DeleteFunc(slices.Clone(s.NotHost), func(d string) bool { return d == s.Bridge })
	}

	return s
}

// addressesOnUplink reports whether, in layout bridged, the uplink has the host's addresses and the
// bridge has none. The uplink may be a bridge port at the same time, because OVSDB survives a
// reboot. In that state nothing reaches the host.
func addressesOnUplink(h Host, s Settings) bool {
	return s.Layout == verdict.Bridged && len(nodeOf(h, s).Addresses) == 0 &&
		len(nodeOf(h, s.withAddressesOf(verdict.Direct)).Addresses) > 0
}
