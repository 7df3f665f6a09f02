package bpf

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// bridgedNode has the node's address on breth0. Its other end stands for OVS' local port.
func bridgedNode(t *testing.T, vlan uint16, clsact bool) (*node, *Gateway) {
	t.Helper()
	n := newNode(t)
	n.addr(t, "breth0", v4.node.String()+"/24")
	n.neighbour(t, v4.foreign)
	n.neighbour(t, v4.clusterIP)
	n.must(t, func() error {
		return n.RouteAdd(&netlink.Route{LinkIndex: n.bridge, Dst: netlink.NewIPNet(v4.clusterIP.AsSlice()), Scope: netlink.SCOPE_LINK})
	})
	c := n.config()
	c.Layout, c.VLAN = verdict.Bridged, vlan
	g := n.open(t, func(o *Options) { o.Config, o.ForceClsact = c, clsact })
	n.must(t, func() error { return errors.Join(g.AttachBridge(n.bridge), g.AttachUplink(n.uplink)) })
	n.flowStandIn(t, clsact)

	return n, g
}

func (n *node) neighbour(t *testing.T, a netip.Addr) {
	t.Helper()

	err := n.NeighAdd(&netlink.Neigh{
		LinkIndex: n.bridge, IP: a.AsSlice(), HardwareAddr: peerMAC, State: unix.NUD_PERMANENT, Family: unix.AF_INET,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flowStandIn stands for the bridge's flow that sends packets marked for OVN to the patch port. It
// runs after the agent's program on the uplink and sends such packets out of patch0, to ovn1.
func (n *node) flowStandIn(t *testing.T, clsact bool) {
	t.Helper()
	patch := n.veth(t, "patch0", nodeMAC, n.peer, "ovn1")

	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 8, asm.Word), // skb->mark
		asm.Mov.Imm(asm.R0, -1),
		asm.JNE.Imm(asm.R2, 0x6f76, "out"),
		asm.Mov.Imm(asm.R1, int32(patch)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { p.Close() })

	if clsact {
		f := clsactFilter(n.uplink, p.FD(), "flow_stand_in", false)
		f.Priority = 2

		n.must(t, func() error { return n.FilterReplace(f) })

		return
	}

	n.must(t, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: n.uplink, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}

		return err
	})
}

// transmit sends a frame out of a device, as OVS does.
func (n *node) transmit(t *testing.T, ifindex int, frame []byte) {
	t.Helper()
	n.must(t, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)

		err = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
		if errors.Is(err, unix.ENOBUFS) {
			return nil // the error for a packet dropped at egress
		}

		return err
	})
}

// hostUDP is a host socket on the node's address.
func (n *node) hostUDP(t *testing.T, port uint16) net.PacketConn {
	t.Helper()

	var c net.PacketConn

	n.must(t, func() (err error) {
		c, err = net.ListenPacket("udp4", netip.AddrPortFrom(v4.node, port).String())
		return err
	})
	t.Cleanup(func() { c.Close() })

	_ = c.SetDeadline(time.Now().Add(10 * time.Second))

	return c
}

func expectUDP(t *testing.T, c net.PacketConn, payload string) {
	t.Helper()

	buf := make([]byte, 64)
	if k, _, err := c.ReadFrom(buf); err != nil || string(buf[:k]) != payload {
		t.Fatalf("host received %q, %v; want %q", buf[:k], err, payload)
	}
}

// Every path of a packet where the uplink is a port of the bridge.
func TestBridged_everyPath(t *testing.T) {
	for _, mode := range attachModes {
		for name, vlan := range map[string]uint16{"untagged": 0, "tagged": 100} {
			t.Run(mode.name+" "+name, func(t *testing.T) {
				if !mode.clsact {
					needTCX(t)
				}

				n, _ := bridgedNode(t, vlan, mode.clsact)
				testBridged(t, n, vlan)
			})
		}
	}
}

func testBridged(t *testing.T, n *node, vlan uint16) {
	wire, local, ovn, host := n.tap(t, "wire0"), n.tap(t, "ovn0"), n.tap(t, "ovn1"), n.hostUDP(t, 53)

	priority := uint16(3 << 13)
	if vlan == 0 {
		priority = 0
	}

	tagged := func(frame []byte) []byte {
		if vlan == 0 {
			return frame
		}

		return join(frame[:12], be16(0x8100), be16(vlan|priority), frame[12:])
	}
	before := counts(t, n.pinDir)

	wire.send(t, tagged(v4.rx(v4.foreign, v4.node, protoUDP, udp(4000, 53, 'h'))))
	expectUDP(t, host, "h")

	toOVN := v4.rx(v4.foreign, v4.node, protoUDP, udp(53, 50000, 'o'))
	wire.send(t, tagged(toOVN))
	ovn.expectTagged(t, toOVN, vlan|priority)

	toBoth := ether(nodeMAC, peerMAC, 0x0806, arpPacket(2, v4.foreign, v4.node))
	up := n.packetSocket(t, n.bridge)
	wire.send(t, tagged(toBoth))
	ovn.expectTagged(t, toBoth, vlan|priority)
	up.expectTagged(t, toBoth, 0)

	out := v4.tx(v4.node, v4.remote, protoUDP, udp(50000, 53, 'x'))
	n.transmit(t, n.uplink, tagged(out))
	wire.expectTagged(t, out, vlan|priority)
	n.transmit(t, n.uplink, v4.tx(v4.pod, v4.remote, protoUDP, udp(50000, 53, 'x')))
	n.transmit(t, n.uplink, v4.tx(v4.vip, v4.node, protoUDP, udp(50000, 53, 'u')))
	expectUDP(t, host, "u")

	if _, err := host.WriteTo([]byte("w"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(v4.foreign, 4000))); err != nil {
		t.Fatal(err)
	}

	wire.expectPayload(t, udp(53, 4000)[:4], vlan)

	if _, err := host.WriteTo([]byte("s"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(v4.clusterIP, 4001))); err != nil {
		t.Fatal(err)
	}

	local.expectPayload(t, udp(53, 4001)[:4], 0)

	want := map[string]uint64{
		"default": 1, "snat_port": 1, "arp_reply": 1, "out": 1, "unsnated": 1, "hairpin": 1, "host_out": 1, "host_ovn": 1,
	}
	ofKernel := map[string]bool{"host_out": true, "out": true} // as it sends of its own accord

	eventually(t, "counters", func() bool {
		got := deltas(before, counts(t, n.pinDir))
		maps.DeleteFunc(got, func(name string, _ uint64) bool { return want[name] == 0 })

		for name := range ofKernel {
			got[name] = min(got[name], want[name])
		}

		return cmp.Equal(want, got)
	})
}

// Without an interface to hand over to, the bridge's flows get every packet and carry the host's
// traffic.
func TestBridged_unconfigured(t *testing.T) {
	n, g := bridgedNode(t, 0, true)
	c := n.config()

	c.Layout, c.Bridge = verdict.Bridged, 0
	if err := g.SetConfig(c); err != nil {
		t.Fatal(err)
	}

	wire, ovn, host := n.tap(t, "wire0"), n.tap(t, "ovn0"), n.hostUDP(t, 53)
	if _, err := host.WriteTo([]byte("w"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(v4.foreign, 4000))); err != nil {
		t.Fatal(err)
	}

	ovn.expectPayload(t, udp(53, 4000)[:4], 0)

	carried := v4.tx(v4.node, v4.foreign, protoTCP, tcp(22, 4000, flagACK))
	n.transmit(t, n.uplink, carried)
	wire.expectTagged(t, carried, 0)
}

// Host packets that the bridge's flows carry are marked, and no guard applies.
func TestBridged_hostMark(t *testing.T) {
	n, g := bridgedNode(t, 0, true)
	c := n.config()

	c.Layout, c.Local = verdict.Bridged, true
	if err := g.SetConfig(c); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		mark uint32
		want sentTo
	}{{0, sentTo{retRedirect, "local_out"}}, {0x686f, sentTo{retNext, "host_out"}}} {
		before := counts(t, n.pinDir)
		opts := ebpf.RunOptions{
			Data:    v4.tx(v4.node, v4.foreign, protoTCP, tcp(22, 4000, flagACK)),
			Context: skbuff{Ifindex: uint32(n.uplink), Mark: tt.mark},
		}

		var ret uint32

		n.must(t, func() (err error) {
			ret, err = g.progs["bridged_uplink_out"].Run(&opts)
			return err
		})
		moved := deltas(before, counts(t, n.pinDir))
		maps.DeleteFunc(moved, func(name string, _ uint64) bool { // what the kernel sends and gets of its own accord
			return name != tt.want.reason && name != "local_out"
		})

		got := sentTo{ret, strings.Join(slices.Sorted(maps.Keys(moved)), " ")}
		if got != tt.want {
			t.Errorf("mark %x: %+v, want %+v", tt.mark, got, tt.want)
		}
	}
}

// The host does not receive OVN's packets that a bridge without flows floods.
func TestBridged_flood(t *testing.T) {
	n, g := bridgedNode(t, 0, true)

	for mark, want := range map[uint32]uint32{0: retNext, 0x4000: retNext, 0x6f76: retDrop} {
		var ret uint32

		n.must(t, func() (err error) {
			ret, err = g.progs["bridged_bridge_in"].Run(&ebpf.RunOptions{
				Data:    v4.rx(v4.foreign, v4.node, protoTCP, tcp(80, 50000, flagACK)),
				Context: skbuff{Ifindex: uint32(n.bridge), Mark: mark},
			})

			return err
		})

		if ret != want {
			t.Errorf("mark %x: returned %d, want %d", mark, int32(ret), int32(want))
		}
	}
}

type sentTo struct {
	ret    uint32
	reason string
}
