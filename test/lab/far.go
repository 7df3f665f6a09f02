package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Addresses of the far host and of the outside host on the link to it.
const (
	FarIP4, farGateway4 = "198.18.0.2", "198.18.0.1"
	FarIP6, farGateway6 = "2001:db8:71::2", "2001:db8:71::1"
)

// AddFar adds the host "far" behind the outside host, over a link with that MTU. Nodes and pods
// reach it by their default routes. Down removes it.
func (l *Lab) AddFar(_ context.Context, mtu int) error {
	if err := makeHost(l.far(), nil); err != nil {
		return fmt.Errorf("add far host: %w", err)
	}

	ns, err := os.Open(netns.Path(l.far()))
	if err != nil {
		return fmt.Errorf("add far host: %w", err)
	}
	defer ns.Close()

	err = netns.Do(l.ext(), func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "far", MTU: mtu}, PeerName: "eth0", PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(int(ns.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link: %w", err)
		}

		return addresses("far", farGateway4+"/24", farGateway6+"/64")
	})
	if err != nil {
		return fmt.Errorf("add far host: %w", err)
	}

	err = netns.Do(l.far(), func() error {
		if err := addresses("eth0", FarIP4+"/24", FarIP6+"/64"); err != nil {
			return err
		}

		for _, gw := range []string{farGateway4, farGateway6} {
			if err := addRoute(netip.Prefix{}, netip.MustParseAddr(gw)); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return fmt.Errorf("add far host: %w", err)
	}

	return nil
}

func addresses(link string, prefixes ...string) error {
	for _, p := range prefixes {
		if err := addAddress(link, netip.MustParsePrefix(p)); err != nil {
			return err
		}
	}

	return setUp(link)
}

// FabricMTU sets the MTU of all uplinks, the outside host and the fabric.
func (l *Lab) FabricMTU(ctx context.Context, mtu int) error {
	set := func(on string, links ...string) error {
		for _, link := range links {
			if out, err := l.Exec(ctx, on, "ip", "link", "set", link, "mtu", strconv.Itoa(mtu)); err != nil {
				return fmt.Errorf("set MTU of %s on %s: %w: %s", link, on, err, out)
			}
		}

		return nil
	}

	links := []string{"ext", FabricBridge}
	for _, n := range l.Nodes() {
		links = append(links, n.Name)

		devices := []string{"eth0"}
		if l.opts.Uplink == UplinkOwn {
			links, devices = append(links, n.Name+"b"), append(devices, UplinkOwn)
		}

		if err := set(n.Name, devices...); err != nil {
			return err
		}
	}

	if err := set("ext", "eth0"); err != nil {
		return err
	}

	return set("central", links...)
}

func (l *Lab) far() string { return l.opts.Name + "-far" }
