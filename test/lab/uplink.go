package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// Uplinks of a lab: an Ethernet device; a bond of two with one standby (the bond's MAC changes with
// the active one); a VLAN; or a separate device for OVN beside the host's eth0, for layout
// dedicated.
const (
	UplinkPlain = "eth0"
	UplinkBond  = "bond0"
	UplinkVLAN  = "eth0.100"
	UplinkOwn   = "eth1"
)

const vlanID = 100

// hostBridge has the node's addresses before the agent's start if the lab has a gateway VLAN, and
// on hypervisors.
const hostBridge = "br" + UplinkPlain

func checkUplink(name string) error {
	switch name {
	case UplinkPlain, UplinkBond, UplinkVLAN, UplinkOwn:
		return nil
	}

	return fmt.Errorf("uplink %q is none of %s, %s, %s and %s", name, UplinkPlain, UplinkBond, UplinkVLAN, UplinkOwn)
}

// bridged reports whether uplinks are ports of OVS.
func (l *Lab) bridged() bool {
	return l.opts.VMs > 0 || slices.Contains(l.opts.AgentArgs, "--gateway-layout=bridged")
}

// tagged reports whether the agents have a gateway VLAN. The host does not see the tag, which the
// bridge adds.
func (l *Lab) tagged() bool {
	return slices.Contains(l.opts.AgentArgs, "--gateway-vlanid="+strconv.Itoa(vlanID))
}

// bridgeTagged prepares a node with a tagged network as its operator would before the agent's
// start: the uplink is a port of a bridge, which has the host's addresses behind the tag.
func (l *Lab) bridgeTagged(ctx context.Context, n *Node) error {
	err := l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+n.OVSDB, "add-br", hostBridge, "--", "add-port", hostBridge, UplinkPlain,
		"--", "set", "Port", hostBridge, "tag="+strconv.Itoa(vlanID))
	if err != nil {
		return fmt.Errorf("bridge %s of %s: %w", UplinkPlain, n.Name, err)
	}

	return l.addressNode(n)
}

// sumChecksums makes the device compute checksums before sending, if OVS reads uplinks from
// AF_PACKET sockets: no hardware behind them computes checksums.
func (l *Lab) sumChecksums(ctx context.Context, on, device string) error {
	if l.opts.Datapath != "netdev" || !l.bridged() {
		return nil
	}

	_, err := l.Exec(ctx, on, "ethtool", "-K", device, "tx", "off")

	return err
}

// hostDevice returns the node's device with the host's addresses.
func (l *Lab) hostDevice() string {
	switch {
	case l.tagged(), l.opts.VMs > 0:
		return hostBridge
	case l.opts.Uplink == UplinkOwn:
		return UplinkPlain
	default:
		return l.opts.Uplink
	}
}

// GatewayIP returns the address of the i-th node's gateway router. It is the node's address, unless
// OVN has a separate device.
func (l *Lab) GatewayIP(i int, v6 bool) netip.Addr {
	n := l.Node(i)
	switch {
	case l.opts.Uplink != UplinkOwn && v6:
		return n.IP6
	case l.opts.Uplink != UplinkOwn:
		return n.IP4
	case v6:
		return netip.MustParseAddr(fmt.Sprintf("fd00:172:30::%d", 100+i))
	default:
		return netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", 100+i))
	}
}

// wiringArgs returns the arguments of the i-th node's agent for a dedicated device.
func (l *Lab) wiringArgs(i int) []string {
	args := []string{"--gateway-interface", l.opts.Uplink}
	if l.opts.Uplink != UplinkOwn {
		return args
	}

	return append(args, "--gateway-layout", "dedicated", "--gateway-nexthop", ExtIP4+","+ExtIP6,
		"--gateway-address", fmt.Sprintf("%s/24,%s/64", l.GatewayIP(i, false), l.GatewayIP(i, true)))
}

// onFabric returns the device above base that talks to the uplinks of nodes.
func (l *Lab) onFabric(base string) string {
	if l.opts.Uplink == UplinkVLAN || l.tagged() {
		return base + "." + strconv.Itoa(vlanID)
	}

	return base
}

// ExtDevice returns the outside host's device that talks to the nodes.
func (l *Lab) ExtDevice() string { return l.onFabric("eth0") }

// addVLAN creates the device of onFabric in the current namespace.
func (l *Lab) addVLAN(base string) error {
	name := l.onFabric(base)
	if name == base {
		return nil
	}

	parent, err := netlink.LinkByName(base)
	if err != nil {
		return fmt.Errorf("find link %s: %w", base, err)
	}

	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index}, VlanId: vlanID}
	if err := netlink.LinkAdd(vlan); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: has the kernel 8021q?", err)
		}

		return fmt.Errorf("add link %s: %w", name, err)
	}

	return setUp(name)
}

// plugNode gives the node its uplink.
func (l *Lab) plugNode(n *Node) error {
	if err := l.plug(n.Name, n.Netns, "eth0"); err != nil {
		return err
	}

	switch l.opts.Uplink {
	case UplinkVLAN:
		return netns.Do(n.Netns, func() error { return l.addVLAN("eth0") })
	case UplinkBond:
		if err := l.plug(n.Name+"b", n.Netns, "eth1"); err != nil {
			return err
		}

		return netns.Do(n.Netns, bond)
	case UplinkOwn:
		return l.plug(n.Name+"b", n.Netns, UplinkOwn)
	}

	return nil
}

func bond() error {
	b := netlink.NewLinkBond(netlink.LinkAttrs{Name: UplinkBond})

	b.Mode, b.Miimon, b.FailOverMac = netlink.BOND_MODE_ACTIVE_BACKUP, 100, netlink.BOND_FAIL_OVER_MAC_ACTIVE
	if err := netlink.LinkAdd(b); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: has the kernel bonding?", err)
		}

		return fmt.Errorf("add link %s: %w", UplinkBond, err)
	}

	for _, name := range strings.Fields("eth0 eth1") {
		slave, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}

		if err := netlink.LinkSetDown(slave); err != nil {
			return fmt.Errorf("set link %s down: %w", name, err)
		}

		if err := netlink.LinkSetMasterByIndex(slave, b.Index); err != nil {
			return fmt.Errorf("add %s to %s: %w", name, UplinkBond, err)
		}
	}

	return setUp(UplinkBond)
}
