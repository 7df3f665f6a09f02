package bpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// quietNode is a node with devices that carry only the test's packets: the kernel has no address
// there.
func quietNode(t testing.TB, layout verdict.Layout, wire func(testing.TB, *node) int) (*node, *Gateway) {
	t.Helper()
	n := quietDevices(t, wire)
	c := n.config()
	c.Layout = layout

	g := n.open(t, func(o *Options) { o.Config, o.CountServices = c, 2 })
	if err := g.SyncAddrs(map[netip.Addr]verdict.AddrKind{
		v4.node: verdict.AddrHost, v6.node: verdict.AddrHost, v4.second: verdict.AddrHost, v6.second: verdict.AddrHost, v4.foreign: verdict.AddrPeer, v6.foreign: verdict.AddrPeer,
	}); err != nil {
		t.Fatal(err)
	}

	n.must(t, func() error { return errors.Join(g.AttachBridge(n.bridge), g.AttachUplink(n.uplink)) })

	return n, g
}

func quietDevices(t testing.TB, wire func(testing.TB, *node) int) *node {
	t.Helper()

	n := &node{namespace: newNamespace(t), peer: newNamespace(t), pinDir: newPinDir(t)}
	for _, ns := range []*namespace{n.namespace, n.peer} {
		ns.must(t, func() error {
			return errors.Join(writeSysctl("net/ipv6/conf/all/disable_ipv6", "1"), writeSysctl("net/ipv6/conf/default/disable_ipv6", "1"))
		})
	}

	n.uplink = wire(t, n)
	n.bridge = n.veth(t, "breth0", nodeMAC, n.peer, "ovn0")

	return n
}

func vethWire(t testing.TB, n *node) int { return n.veth(t, "eth0", nodeMAC, n.peer, "wire0") }

// sender sends frames on a device, after a struct virtio_net_hdr.
type sender func(header [10]byte, frame []byte) error

const packetVnetHdr = 15 // PACKET_VNET_HDR

func packetSender(t testing.TB, ns *namespace, ifindex int) sender {
	t.Helper()

	var fd int

	ns.must(t, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(fd) })

	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, packetVnetHdr, 1); err != nil {
		t.Fatal(err)
	}

	return func(header [10]byte, frame []byte) error {
		err := unix.Sendto(fd, append(header[:], frame...), 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
		if errors.Is(err, unix.ENOBUFS) {
			return nil // the error for a packet dropped at egress
		}

		return err
	}
}

// tapWire makes the uplink a tap, which receives like the NIC of a virtual machine.
func tapWire(t testing.TB, n *node, send *sender) int {
	t.Helper()

	var fd int

	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("kernel has no tun: %v", err)
	}

	n.must(t, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return err
		}

		request, err := unix.NewIfreq("eth0")
		if err != nil {
			return err
		}

		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)

		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	})
	t.Cleanup(func() { unix.Close(fd) })

	l, err := n.LinkByName("eth0")
	if err == nil {
		err = n.LinkSetHardwareAddr(l, nodeMAC)
	}

	if err != nil {
		t.Fatal(err)
	}

	*send = func(header [10]byte, frame []byte) error {
		_, err := unix.Write(fd, append(header[:], frame...))
		return err
	}

	return n.up(t, "eth0")
}

// gsoHeader returns the header of a frame that is to be cut into segments of size bytes of payload.
func gsoHeader(f family, size int) [10]byte {
	const needsChecksum, tcp4, tcp6, tcpChecksum = 1, 1, 4, 16

	h := [10]byte{needsChecksum, tcp4}

	l4 := 14 + 20
	if f.node.Is6() {
		h[1], l4 = tcp6, 14+40
	}

	for i, v := range []int{l4 + 20, size, l4, tcpChecksum} {
		binary.NativeEndian.PutUint16(h[2+2*i:], uint16(v))
	}

	return h
}

// offload switches one of a device's features, by its ethtool command.
func (n *namespace) offload(t *testing.T, device string, command, on uint32) {
	t.Helper()
	n.must(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)

		value := [2]uint32{command, on}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:], device)

		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return errno
		}

		return nil
	})
}

const (
	ethtoolTSO = 0x1f // ETHTOOL_STSO
	ethtoolGSO = 0x24 // ETHTOOL_SGSO
	ethtoolGRO = 0x2c // ETHTOOL_SGRO
)

// holdGRO makes the device's GRO wait for more packets, like a device with its own interrupts.
func (n *namespace) holdGRO(t *testing.T, device string) {
	t.Helper()
	dir := t.TempDir()
	n.must(t, func() error { return unix.Mount("sysfs", dir, "sysfs", 0, "") })

	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount sysfs: %v", err)
		}
	}()

	if err := os.WriteFile(filepath.Join(dir, "class/net", device, "gro_flush_timeout"), []byte("20000000"), 0); err != nil {
		t.Fatal(err)
	}
}
