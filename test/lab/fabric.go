package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// FabricBridge is the bridge of all uplinks, in the namespace of the host "central".
const FabricBridge = "fab0"

// startFabric creates the bridge and the outside host.
func (l *Lab) startFabric() error {
	if err := makeHost(l.fabric(), nil); err != nil {
		return err
	}

	if err := netns.Do(l.fabric(), l.makeBridge); err != nil {
		return fmt.Errorf("make fabric: %w", err)
	}

	forward := map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
	if err := makeHost(l.ext(), forward); err != nil {
		return err
	}

	if err := l.plug("ext", l.ext(), "eth0"); err != nil {
		return err
	}

	return netns.Do(l.ext(), func() error {
		if err := l.addVLAN("eth0"); err != nil {
			return err
		}

		uplink := l.ExtDevice()
		for _, a := range []struct{ link, prefix string }{
			{uplink, ExtIP4 + "/24"}, {uplink, ExtIP6 + "/64"}, {"lo", BehindIP4 + "/32"}, {"lo", BehindIP6 + "/128"},
		} {
			if err := addAddress(a.link, netip.MustParsePrefix(a.prefix)); err != nil {
				return err
			}
		}

		return nil
	})
}

// makeHost creates a namespace with its loopback up. Duplicate address detection is off, so that
// new addresses can be used at once.
func makeHost(name string, sysctls map[string]string) error {
	if err := netns.Create(name); err != nil {
		return err
	}

	return netns.Do(name, func() error {
		for key, value := range map[string]string{
			"net/ipv6/conf/all/disable_ipv6": "0", "net/ipv6/conf/default/disable_ipv6": "0",
			"net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0",
			"net/ipv6/conf/default/accept_ra": "0",
			"net/ipv4/conf/all/rp_filter":     "0", "net/ipv4/conf/default/rp_filter": "0",
		} {
			if err := sysctl(key, value); err != nil {
				return err
			}
		}

		for key, value := range sysctls {
			if err := sysctl(key, value); err != nil {
				return err
			}
		}

		return setUp("lo")
	})
}

// makeBridge creates the fabric's bridge in the current namespace, with the central addresses.
func (l *Lab) makeBridge() error {
	snooping := false // it would hold back neighbour solicitations
	// A fixed MAC: otherwise the bridge takes that of its lowest port, and neighbours' entries of
	// central become stale when the next port is added.
	attrs := netlink.LinkAttrs{Name: FabricBridge, HardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0xfa, 0xb0}}

	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge %s: %w", FabricBridge, err)
	}

	if err := setUp(FabricBridge); err != nil {
		return err
	}

	if err := l.addVLAN(FabricBridge); err != nil {
		return err
	}

	for _, p := range []string{CentralIP4 + "/24", CentralIP6 + "/64"} {
		if err := addAddress(l.onFabric(FabricBridge), netip.MustParsePrefix(p)); err != nil {
			return err
		}
	}

	return nil
}

// plug connects a new device of the namespace to the fabric. Its other end, on the bridge, is
// called port.
func (l *Lab) plug(port, name, device string) error {
	ns, err := os.Open(netns.Path(name))
	if err != nil {
		return fmt.Errorf("plug %s into fabric: %w", port, err)
	}
	defer ns.Close()

	err = netns.Do(l.fabric(), func() error {
		bridge, err := netlink.LinkByName(FabricBridge)
		if err != nil {
			return err
		}

		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index},
			PeerName:  device, PeerNamespace: netlink.NsFd(int(ns.Fd())),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}

		return netlink.LinkSetUp(veth)
	})
	if err != nil {
		return fmt.Errorf("plug %s into fabric: %w", port, err)
	}

	return netns.Do(name, func() error { return setUp(device) })
}

// makeNodeNetwork creates a node's network as on a machine: the uplink, its addresses, and default
// routes by the outside host. If these are on a bridge, bridgeTagged or bridgeHypervisor adds them.
func (l *Lab) makeNodeNetwork(n *Node) error {
	if err := makeHost(n.Netns, nil); err != nil {
		return err
	}

	if err := l.plugNode(n); err != nil {
		return err
	}

	if l.hostDevice() == hostBridge {
		return nil
	}

	return l.addressNode(n)
}

// addressNode sets the node's addresses and default routes.
func (l *Lab) addressNode(n *Node) error {
	err := netns.Do(n.Netns, func() error {
		if err := setUp(l.hostDevice()); err != nil {
			return err
		}

		for _, p := range []netip.Prefix{netip.PrefixFrom(n.IP4, 24), netip.PrefixFrom(n.IP6, 64)} {
			if err := addAddress(l.hostDevice(), p); err != nil {
				return err
			}
		}

		for _, gw := range []string{ExtIP4, ExtIP6} {
			if err := addRoute(netip.Prefix{}, netip.MustParseAddr(gw)); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return fmt.Errorf("make network of %s: %w", n.Name, err)
	}

	return nil
}

// addRoute adds a route to the network. The zero Prefix is a default route.
func addRoute(to netip.Prefix, gateway netip.Addr) error { return addRouteMTU(to, gateway, 0) }

// addRouteMTU is addRoute with the MTU of the path; 0 is that of the device.
func addRouteMTU(to netip.Prefix, gateway netip.Addr, mtu int) error {
	route := &netlink.Route{Gw: gateway.AsSlice(), MTU: mtu}

	what := "default route"
	if to.IsValid() {
		route.Dst, what = ipNet(to), "route to "+to.String()
	}

	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add %s via %s: %w", what, gateway, err)
	}

	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addAddress(link string, p netip.Prefix) error {
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}

	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}

	if err := netlink.AddrAdd(dev, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", p, link, err)
	}

	return nil
}

func setUp(link string) error {
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}

	if err := netlink.LinkSetUp(dev); err != nil {
		return fmt.Errorf("set link %s up: %w", link, err)
	}

	return nil
}

// sysctl writes below /proc/sys. Keys of net belong to the network namespace of
// the thread that opens them.
func sysctl(key, value string) error {
	if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0); err != nil {
		return fmt.Errorf("set sysctl %s: %w", key, err)
	}

	return nil
}
