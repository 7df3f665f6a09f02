package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// VMMTU is the MTU of VMs and their pods, in bytes: the fabric's 1500 minus the headers of Geneve.
const VMMTU = 1442

// maxVMs is the number of VMs whose pods have addresses below 10.244.0.144.
const maxVMs = 8

// vmDevice is the NIC of a VM.
const vmDevice = "eth0"

// firstTag and lastTag are the VLAN tags of a VM's nested ports. They equal the host parts of the
// ports' addresses: 0 is the network, 1 the router and 15 the broadcast address.
const firstTag, lastTag = 2, 14

// VM is a machine of the lab's cloud. Neither OVN nor Open vSwitch runs in it: its NIC is a logical
// port, which its hypervisor serves.
type VM struct {
	*Node             // without IP6, Encap and OVSDB. Index is 0 for the VM "plain"
	VIF        string // UUID of the NIC's logical port
	MAC        net.HardwareAddr
	Hypervisor *Node
}

// VMs returns the VMs that are nodes of Kubernetes.
func (l *Lab) VMs() []*VM {
	vms := make([]*VM, l.opts.VMs)
	for i := range vms {
		vms[i] = l.VM(i + 1)
	}

	return vms
}

// VM returns the i-th of VMs, from 1.
func (l *Lab) VM(i int) *VM {
	address := netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)})
	return l.newVM("vm"+strconv.Itoa(i), i, address, l.Node((i-1)%l.opts.Nodes+1))
}

// Plain returns the VM that is not a node of Kubernetes. Every lab with VMs has it.
func (l *Lab) Plain() *VM {
	return l.newVM("plain", 0, netip.AddrFrom4([4]byte{10, 0, 0, 100}), l.Node(l.opts.Nodes))
}

// machines returns the VMs and Plain, if the lab has VMs.
func (l *Lab) machines() []*VM {
	if l.opts.VMs == 0 {
		return nil
	}

	return append(l.VMs(), l.Plain())
}

func (l *Lab) newVM(name string, i int, address netip.Addr, hypervisor *Node) *VM {
	run := l.path(name)

	return &VM{
		Node: &Node{
			Name: name, Index: i, Netns: l.opts.Name + "-" + name, IP4: address, RunDir: run,
			PinDir:    filepath.Join(l.path("bpf"), name),
			CNISocket: filepath.Join(run, "cni.sock"), CNIConfDir: filepath.Join(run, "net.d"),
			MetricsURL: "http://" + agentMetrics + "/metrics",
		},
		VIF: l.vif(name, i), MAC: cloudMAC(i, 0), Hypervisor: hypervisor,
	}
}

// vif returns the UUID of the port of the i-th VM. With a cloud, it is "" until Neutron has made it.
func (l *Lab) vif(name string, i int) string {
	if l.opts.Cloud {
		return l.vifs[name]
	}

	return cloudUUID(cloudPort, i, 0)
}

// Ports returns the nested ports of the VM, by tag. Each is for one pod.
func (v *VM) Ports() []annotation.PoolPort {
	var ports []annotation.PoolPort
	for tag := firstTag; tag <= lastTag; tag++ {
		ports = append(ports, annotation.PoolPort{
			ID: cloudUUID(cloudPort, v.Index, tag), Tag: tag, MAC: cloudMAC(v.Index, tag),
			Addresses: []netip.Addr{v.podAddress(tag)},
		})
	}

	return ports
}

// podGateway returns the router's address in the network of the VM's pods, with that network.
func (v *VM) podGateway() netip.Prefix { return netip.PrefixFrom(v.podAddress(1), 28) }

// podAddress returns the address of the VM's pods with this host part.
func (v *VM) podAddress(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244, 0, byte(16*v.Index + host)})
}

// tap returns the name of the hypervisor's end of the VM's NIC.
func (v *VM) tap() string { return "tap" + strings.TrimPrefix(v.Name, "vm") }

// startVMs boots all VMs and waits until OVN serves their ports.
func (l *Lab) startVMs(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, v := range l.machines() {
		group.Go(func() error { return l.startVM(groupCtx, v) })
	}

	if err := group.Wait(); err != nil {
		return err
	}

	for _, v := range l.machines() {
		l.step("%s: %s, on %s", v.Name, v.IP4, v.Hypervisor.Name)
	}

	if err := l.awaitCloud(ctx); err != nil {
		return err
	}

	return l.awaitNeighbours(ctx)
}

// awaitNeighbours waits until the hypervisors of all VMs reach each other, and until the router knows
// the hosts outside. The userspace datapath drops packets for a hypervisor until it has its MAC, which
// it requests for the first of them, and the router's first packet to a host may be lost likewise.
func (l *Lab) awaitNeighbours(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	reach := func(from string, to *VM) {
		group.Go(func() error {
			ping := append(strings.Fields("ping -n -q -c 1 -w 30 -i 0.1"), to.IP4.String())
			_, err := l.Exec(ctx, from, ping...)

			return err
		})
	}

	for i, v := range l.machines() {
		for _, other := range l.machines()[:i] {
			if v.Hypervisor.Name != other.Hypervisor.Name {
				reach(v.Name, other)
			}
		}
	}

	for _, outside := range []string{"ext", "central"} {
		reach(outside, l.Plain())
	}

	if err := group.Wait(); err != nil {
		return fmt.Errorf("wait for neighbours: %w", err)
	}

	return nil
}

// startVM creates the VM's directories and network, plugs its NIC into the hypervisor's Open
// vSwitch, and waits until OVN serves it.
func (l *Lab) startVM(ctx context.Context, v *VM) error {
	for _, dir := range []string{v.RunDir, v.PinDir, v.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("start %s: %w", v.Name, err)
		}
	}

	if err := makeHost(v.Netns, nil); err != nil {
		return fmt.Errorf("start %s: %w", v.Name, err)
	}

	if err := l.plugVM(ctx, v); err != nil {
		return fmt.Errorf("start %s: %w", v.Name, err)
	}

	if err := netns.Do(v.Netns, func() error { return l.configureNIC(v) }); err != nil {
		return fmt.Errorf("start %s: %w", v.Name, err)
	}

	// ovn-controller marks the interface when its flows are in place.
	err := l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+v.Hypervisor.OVSDB,
		"add-port", "br-int", v.tap(), "--", "set", "Interface", v.tap(), "external_ids:iface-id="+v.VIF,
		fmt.Sprintf("external_ids:attached-mac=%q", v.MAC))
	if err == nil {
		err = l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+v.Hypervisor.OVSDB,
			"wait-until", "Interface", v.tap(), "external_ids:ovn-installed=true")
	}

	if err != nil {
		return fmt.Errorf("start %s: %w", v.Name, err)
	}

	return nil
}

// plugVM gives the VM its NIC, whose other end is the hypervisor's tap.
func (l *Lab) plugVM(ctx context.Context, v *VM) error {
	pair, err := v.hasPair()
	if err != nil {
		return err
	}

	if pair {
		err = movePair(ctx, v)
	} else {
		err = netns.Do(v.Hypervisor.Netns, func() error { return addVeth(v) })
	}

	if err != nil {
		return err
	}

	return netns.Do(v.Hypervisor.Netns, func() error { return l.configureTap(v) })
}

// addVeth creates the VM's NIC from the hypervisor's namespace, the current one.
func addVeth(v *VM) error {
	ns, err := os.Open(netns.Path(v.Netns))
	if err != nil {
		return err
	}
	defer ns.Close()

	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: v.tap(), MTU: VMMTU}, PeerName: vmDevice, PeerMTU: VMMTU,
		PeerHardwareAddr: v.MAC, PeerNamespace: netlink.NsFd(int(ns.Fd())),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", v.tap(), err)
	}

	return nil
}

// configureTap prepares the tap for Open vSwitch, in the hypervisor's namespace, the current one.
func (l *Lab) configureTap(v *VM) error {
	// The hypervisor must not speak on the VM's wire.
	if err := sysctl("net/ipv6/conf/"+v.tap()+"/disable_ipv6", "1"); err != nil {
		return err
	}

	if err := l.hideFromStack(v.tap()); err != nil {
		return err
	}

	return setUp(v.tap())
}

// configureNIC sets the VM's address and default route, in the current namespace.
func (l *Lab) configureNIC(v *VM) error {
	if err := l.disableOffload(vmDevice); err != nil {
		return err
	}

	if err := addAddress(vmDevice, netip.PrefixFrom(v.IP4, vmGateway.Bits())); err != nil {
		return err
	}

	if err := setUp(vmDevice); err != nil {
		return err
	}

	return addRoute(netip.Prefix{}, vmGateway.Addr())
}

// hideFromStack keeps the frames of a port of Open vSwitch from the kernel's stack, in the current
// namespace. The userspace datapath reads copies of them, so the stack would handle them, too.
func (l *Lab) hideFromStack(device string) error {
	if l.opts.Datapath != "netdev" {
		return nil
	}

	dev, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find link %s: %w", device, err)
	}

	steal, err := bpf.NewSteal(bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact})
	if err != nil {
		return err
	}
	defer steal.Close()

	return steal.Attach(dev.Attrs().Index)
}

// disableOffload makes the device compute checksums before sending, because the userspace datapath
// behind it does not compute them.
func (l *Lab) disableOffload(device string) error {
	if l.opts.Datapath != "netdev" {
		return nil
	}

	return link.DisableTxChecksum(device)
}

// rebootVM powers the VM off and boots it. Its hypervisor and its logical ports stay.
func (l *Lab) rebootVM(ctx context.Context, v *VM) error {
	// A port of the same name that stays would keep the sockets of the former device.
	err := l.run(ctx, "ovs-vsctl", "--timeout=60", "--db="+v.Hypervisor.OVSDB,
		"del-port", "br-int", v.tap())
	if err != nil {
		return fmt.Errorf("power %s off: %w", v.Name, err)
	}

	if err := l.powerOff(v.Node, v.Hypervisor.Netns, v.tap()); err != nil {
		return fmt.Errorf("power %s off: %w", v.Name, err)
	}

	if err := l.startVM(ctx, v); err != nil {
		return fmt.Errorf("boot %s: %w", v.Name, err)
	}

	return l.awaitCloud(ctx)
}
