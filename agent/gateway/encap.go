package gateway

import (
	"net/netip"
	"slices"
)

// EncapAddress returns the host's address that tunnels end at when none is
// configured, IPv4 first; the zero Addr if there is none. The host's addresses may still
// be where another layout, or a boot, has put them; in layout dedicated they
// are on the device of the default route: the gateway router's own would not do.
func EncapAddress(s Settings) (netip.Addr, error) {
	h, err := observe(s.Uplink, s.Bridge)
	if err != nil {
		return netip.Addr{}, err
	}
	return encapAddress(h, s), nil
}

func encapAddress(h Host, s Settings) netip.Addr {
	var places []Settings
	switch s.Layout {
	case Dedicated:
		for _, r := range h.Defaults {
			at := s.placed(Direct)
			at.Uplink, at.Addresses = r.Device, nil
			places = append(places, at)
		}
	case Bridged:
		places = []Settings{s, s.placed(Direct)}
	default:
		places = []Settings{s, s.placed(Bridged)}
	}
	for _, at := range places {
		n := nodeOf(h, at)
		for _, is4 := range []bool{true, false} {
			if a := n.Address(is4); a.IsValid() {
				return a
			}
		}
	}
	return netip.Addr{}
}

// placed returns the settings of a node whose addresses are where the layout has them.
func (s Settings) placed(layout Layout) Settings {
	s.Layout = layout
	if layout == Bridged {
		s.NotHost = slices.DeleteFunc(slices.Clone(s.NotHost), func(d string) bool { return d == s.Bridge })
	}
	return s
}

// misplaced reports whether the uplink of layout bridged has the host's
// addresses and the bridge has none. The database of OVS outlives a reboot, so the
// uplink can be a port all the same: then nothing reaches the host.
func misplaced(h Host, s Settings) bool {
	return s.Layout == Bridged && len(nodeOf(h, s).Addresses) == 0 && len(nodeOf(h, s.placed(Direct)).Addresses) > 0
}
