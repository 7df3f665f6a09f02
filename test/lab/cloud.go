package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// RouterIP4 and RouterIP6 are the addresses of the cloud's router on the fabric. VMs and pods are
// behind it, without NAT.
const (
	RouterIP4 = "172.30.0.250"
	RouterIP6 = "fd00:172:30::250"
)

// The cloud's logical router, and its logical switches beside those of pods.
const (
	cloudRouter   = "cloud"
	publicNetwork = "public"
	vmNetwork     = "vms"
)

// physicalNetwork is OVN's name of the fabric.
const physicalNetwork = "physnet"

// vmGateway is the router's address in the network of the VMs.
var vmGateway = netip.MustParsePrefix("10.0.0.1/24")

// podNetworks contains the addresses of all pods.
var podNetworks = netip.MustParsePrefix("10.244.0.0/16")

// Kinds of objects with a UUID.
const (
	cloudPort = iota
	cloudNetwork
	cloudTrunk
	cloudServer
)

// cloudUUID returns the UUID of an object of the i-th VM, in the form of Neutron's.
func cloudUUID(kind, i, tag int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%04x%08x", kind, i, tag)
}

// cloudMAC returns the MAC of a port of the i-th VM. Tag 0 is its NIC.
func cloudMAC(i, tag int) net.HardwareAddr {
	return net.HardwareAddr{0xfa, 0x16, 0x3e, 0, byte(i), byte(tag)}
}

// routerMAC returns the MAC of a port of the router: onFabric, onVMs, or the number of the VM whose
// pods are in the port's network.
func routerMAC(port int) net.HardwareAddr {
	return net.HardwareAddr{0xfa, 0x16, 0x3e, 1, 0, byte(port)}
}

// Ports of the router.
const (
	onVMs    = 0
	onFabric = 255
)

// startCloud writes the logical network, and starts the VMs on it.
func (l *Lab) startCloud(ctx context.Context) error {
	if l.opts.Cloud {
		if err := l.startOpenStack(ctx); err != nil {
			return err
		}

		if err := l.neutronNetwork(ctx); err != nil {
			return err
		}
	} else if err := l.nbctl(ctx, l.logicalNetwork()...); err != nil {
		return fmt.Errorf("write logical network: %w", err)
	}

	for _, outside := range []string{l.ext(), l.fabric()} {
		err := netns.Do(outside, func() error {
			for _, to := range []netip.Prefix{vmGateway.Masked(), podNetworks} {
				// The hosts of a real network know its MTU. OVN does not fragment what it forwards.
				if err := addRouteMTU(to, netip.MustParseAddr(RouterIP4), VMMTU); err != nil {
					return err
				}
			}

			return nil
		})
		if err != nil {
			return err
		}
	}

	return l.startVMs(ctx)
}

// awaitCloud waits until all hypervisors have the flows of the Northbound database's content.
func (l *Lab) awaitCloud(ctx context.Context) error {
	if err := l.nbctl(ctx, "--wait=hv", "sync"); err != nil {
		return fmt.Errorf("wait for hypervisors: %w", err)
	}

	return nil
}

func (l *Lab) nbctl(ctx context.Context, args ...string) error {
	return l.run(ctx, "ovn-nbctl", append([]string{"--timeout=60", "--db=" + l.NBSocket()}, args...)...)
}

// logicalNetwork returns the commands of ovn-nbctl that make the router, the switches, and the
// ports of VMs and pods. They are one transaction.
func (l *Lab) logicalNetwork() []string {
	commands := [][]string{{"lr-add", cloudRouter}}
	public := routedSwitch(publicNetwork, routerMAC(onFabric), RouterIP4+"/24", RouterIP6+"/64")
	commands = append(commands, public...)
	commands = append(commands,
		[]string{"lsp-add", publicNetwork, physicalNetwork},
		[]string{"lsp-set-type", physicalNetwork, "localnet"},
		[]string{"lsp-set-addresses", physicalNetwork, "unknown"},
		[]string{"lsp-set-options", physicalNetwork, "network_name=" + physicalNetwork},
		// One chassis forwards between the fabric and the VMs.
		[]string{"lrp-set-gateway-chassis", routerPort(publicNetwork), l.Node(1).Name},
		[]string{"lr-route-add", cloudRouter, "0.0.0.0/0", ExtIP4},
	)

	commands = append(commands, routedSwitch(vmNetwork, routerMAC(onVMs), vmGateway.String())...)
	for _, v := range l.machines() {
		commands = append(commands, switchPort(vmNetwork, v.VIF, v.MAC, v.IP4)...)
	}

	for _, v := range l.VMs() {
		network := "pods-" + v.Name

		commands = append(commands, routedSwitch(network, routerMAC(v.Index), v.podGateway().String())...)
		for _, p := range v.Ports() {
			nested := []string{v.VIF, strconv.Itoa(p.Tag)}
			commands = append(commands, switchPort(network, p.ID, p.MAC, p.Addresses[0], nested...)...)
		}
	}

	for i := range commands[1:] {
		commands[i] = append(commands[i], "--")
	}

	return slices.Concat(commands...)
}

// routedSwitch returns the commands for a switch, and for the router's port on it.
func routedSwitch(name string, mac net.HardwareAddr, addresses ...string) [][]string {
	port := name + "-" + cloudRouter

	return [][]string{
		{"ls-add", name},
		append([]string{"lrp-add", cloudRouter, routerPort(name), mac.String()}, addresses...),
		{"lsp-add", name, port},
		{"lsp-set-type", port, "router"},
		{"lsp-set-addresses", port, "router"},
		{"lsp-set-options", port, "router-port=" + routerPort(name)},
	}
}

// routerPort returns the name of the router's port on a switch.
func routerPort(network string) string { return cloudRouter + "-" + network }

// switchPort returns the commands for a port that may use one MAC and address only. nested is the
// parent port and the VLAN tag of a nested port.
func switchPort(
	network, id string, mac net.HardwareAddr, address netip.Addr, nested ...string,
) [][]string {
	own := mac.String() + " " + address.String()

	return [][]string{
		append([]string{"lsp-add", network, id}, nested...),
		{"lsp-set-addresses", id, own},
		{"lsp-set-port-security", id, own},
	}
}

// bridgeHypervisor makes the uplink of a hypervisor a port of the gateway bridge, which takes over
// the host's addresses. On the userspace datapath, tunnels end only at the addresses of bridges.
// Without a controller, the bridge is a learning switch, also after a restart of ovs-vswitchd.
func (l *Lab) bridgeHypervisor(ctx context.Context, n *Node) error {
	var mac net.HardwareAddr

	err := netns.Do(n.Netns, func() error {
		uplink, err := netlink.LinkByName(UplinkPlain)
		if err == nil {
			mac = uplink.Attrs().HardwareAddr
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("read MAC of %s: %w", UplinkPlain, err)
	}

	err = l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+n.OVSDB, "add-br", hostBridge, "--",
		"set", "Bridge", hostBridge, "datapath_type="+l.opts.Datapath, "fail_mode=standalone",
		fmt.Sprintf("other_config:hwaddr=%q", mac), "--", "add-port", hostBridge, UplinkPlain)
	if err != nil {
		return err
	}

	err = netns.Do(n.Netns, func() error {
		if err := l.hideFromStack(UplinkPlain); err != nil {
			return err
		}

		return l.disableOffload(hostBridge)
	})
	if err != nil {
		return err
	}

	if err := l.addressNode(n); err != nil {
		return err
	}

	// ovn-controller connects the bridge to br-int only now that it forwards.
	return l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+n.OVSDB, "set", "Open_vSwitch", ".",
		"external_ids:ovn-bridge-mappings="+strings.Join([]string{physicalNetwork, hostBridge}, ":"))
}
