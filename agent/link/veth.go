package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// PodInterface is a veth pair. The host's end is in the caller's namespace, the pod's end is in the
// pod's namespace and has the pod's addresses and default routes.
type PodInterface struct {
	HostName   string // of the host's end
	Netns      string // path of the pod's namespace
	Name       string // of the pod's end
	MAC        net.HardwareAddr
	MTU        int
	Addresses  []netip.Prefix
	Gateways   []netip.Addr // default routes
	NoChecksum bool         // disable transmit checksum offload in the pod
	// Limits in bits per second, 0 for none. Packets that the pod sends queue in the pod, where its
	// sockets feel the backpressure. Packets that it receives queue at the host's end.
	Egress, Ingress uint64
}

// PodDevice is the host's end of a pod's interface.
type PodDevice struct {
	Ifindex, MTU int
	Limited      bool // it has a bandwidth limit in either direction
}

// podGroup is the device group of the host's ends. It identifies the agent's pairs even if no other
// record exists.
const podGroup = 0x6f766e // "ovn"

// PodDevices returns the names of the host's ends of all pairs of SyncPodInterface.
func PodDevices() ([]string, error) {
	links, err := podDevices()
	if err != nil {
		return nil, err
	}

	var out []string
	for _, l := range links {
		out = append(out, l.Attrs().Name)
	}

	return out, nil
}

// podDevices returns the host's ends of all pairs of SyncPodInterface.
func podDevices() ([]netlink.Link, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	return slices.DeleteFunc(links, func(l netlink.Link) bool {
		return l.Type() != "veth" || l.Attrs().Group != podGroup
	}), nil
}

// SyncPodInterface creates the pair as described and sets both ends up. It keeps a correct pair and
// replaces any other device of those names.
func SyncPodInterface(p PodInterface) error {
	if CheckPodInterface(p) == nil {
		return nil
	}

	if err := Delete(p.HostName); err != nil {
		return err
	}

	ns, err := netns.GetFromPath(p.Netns)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", p.Netns, err)
	}
	defer ns.Close()

	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: p.HostName, MTU: p.MTU, TxQLen: -1, Group: podGroup},
		PeerName:  p.Name, PeerHardwareAddr: p.MAC, PeerMTU: uint32(p.MTU), PeerNamespace: netlink.NsFd(ns),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth pair %s, %s in %s: %w", p.HostName, p.Name, p.Netns, err)
	}

	if err := DisableIPv6(p.HostName); err != nil {
		return err
	}

	if err := Shape(p.HostName, p.Ingress); err != nil {
		return err
	}

	if err := SetUp(p.HostName); err != nil {
		return err
	}

	return InNetns(p.Netns, func() error { return configurePod(p) })
}

// configurePod configures the pod's end. It must run in the pod's namespace.
func configurePod(p PodInterface) error {
	if err := SetUp("lo"); err != nil {
		return err
	}

	has6 := slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if has6 {
		if err := QuietIPv6(p.Name); err != nil {
			return err
		}
	}

	if p.NoChecksum {
		if err := DisableTxChecksum(p.Name); err != nil {
			return err
		}
	}

	if err := Shape(p.Name, p.Egress); err != nil {
		return err
	}

	if err := SetUp(p.Name); err != nil {
		return err
	}

	if err := SyncAddresses(p.Name, p.Addresses); err != nil {
		return err
	}

	l, err := find(p.Name)
	if err != nil {
		return err
	}

	for _, gw := range p.Gateways {
		r := netlink.Route{
			LinkIndex: l.Attrs().Index,
			Dst:       ipNet(Everything(gw.Is4())),
			Gw:        net.IP(gw.AsSlice()),
			Protocol:  unix.RTPROT_STATIC,
		}
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("add default route via %s to %s: %w", gw, p.Name, err)
		}
	}

	return nil
}

// CheckPodInterface returns nil if the pair is as SyncPodInterface creates it, otherwise an error
// that describes the first deviation. It accepts additional addresses and routes.
func CheckPodInterface(p PodInterface) error {
	host, err := Get(p.HostName)
	if err != nil {
		return err
	}

	if !host.Up {
		return fmt.Errorf("device %s is down", p.HostName)
	}

	if err := checkLimit(p.HostName, p.Ingress); err != nil {
		return err
	}

	return InNetns(p.Netns, func() error {
		pod, err := Get(p.Name)
		if err != nil {
			return err
		}

		if !slices.Equal(pod.MAC, p.MAC) || pod.MTU != p.MTU || !pod.Up {
			return fmt.Errorf("device %s in %s: address %s, MTU %d, up %t; want %s, %d, up",
				p.Name, p.Netns, pod.MAC, pod.MTU, pod.Up, p.MAC, p.MTU)
		}

		if err := checkLimit(p.Name, p.Egress); err != nil {
			return err
		}

		have, err := Addresses()
		if err != nil {
			return err
		}

		for _, want := range p.Addresses {
			isWanted := func(a Address) bool { return a.Prefix == want && a.Device == p.Name }
			if !slices.ContainsFunc(have, isWanted) {
				return fmt.Errorf("device %s in %s: no address %s", p.Name, p.Netns, want)
			}
		}

		defaults, err := DefaultRoutes()
		if err != nil {
			return err
		}

		for _, gw := range p.Gateways {
			if !slices.ContainsFunc(defaults, func(r DefaultRoute) bool { return r.NextHop == gw }) {
				return errors.New("no default route via " + gw.String() + " in " + p.Netns)
			}
		}

		return nil
	})
}

// checkLimit returns an error if the device's limit differs from rate, compared in whole bytes per
// second.
func checkLimit(device string, rate uint64) error {
	have, err := Shaped(device)
	if err == nil && have/8 != rate/8 {
		err = fmt.Errorf("device %s: limited to %d bit/s, want %d", device, have, rate)
	}

	return err
}

// Traffic counts the packets of a device in one direction since its creation. A packet that the
// stack has merged, or leaves to be segmented, counts as one. Bytes include the Ethernet header.
type Traffic struct{ Packets, Bytes, Dropped uint64 }

// PodTraffic is the traffic of one pod, from the host's end of its pair.
type PodTraffic struct {
	Name           string
	Index          int
	Received, Sent Traffic // by the pod
}

// PodsTraffic returns the traffic of all pairs of SyncPodInterface, from one dump.
func PodsTraffic() ([]PodTraffic, error) {
	links, err := podDevices()
	if err != nil {
		return nil, err
	}

	out := make([]PodTraffic, 0, len(links))
	for _, l := range links {
		a := l.Attrs()

		s := a.Statistics
		if s == nil {
			continue
		}

		out = append(out, PodTraffic{
			Name:  a.Name,
			Index: a.Index,
			// The pod receives the packets that the host's end sends.
			Received: Traffic{s.TxPackets, s.TxBytes, s.TxDropped},
			Sent:     Traffic{s.RxPackets, s.RxBytes, s.RxDropped},
		})
	}

	return out, nil
}
