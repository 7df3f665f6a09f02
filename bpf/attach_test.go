package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// attachModes are the ways to attach a program to an interface.
var attachModes = []struct {
	name   string
	clsact bool
}{{"tcx", false}, {"clsact", true}}

func attach(t *testing.T, n *node, g *Gateway) {
	t.Helper()
	// On the node's thread, because interface indexes belong to a namespace.
	n.must(t, func() error { return errors.Join(g.AttachUplink(n.uplink), g.AttachBridge(n.bridge)) })
}

func wantAttached(t *testing.T, n *node, g *Gateway, uplink, bridge bool) {
	t.Helper()
	n.must(t, func() error {
		gotUplink, gotBridge, err := g.Attached()
		if err == nil && (gotUplink != uplink || gotBridge != bridge) {
			err = fmt.Errorf("attached: uplink %t, bridge %t; want %t, %t", gotUplink, gotBridge, uplink, bridge)
		}

		return err
	})
}

// traffic sends one packet of each kind: to the host, to OVN, to both, out, dropped.
func traffic(t *testing.T, n *node) {
	t.Helper()
	wire, ovn := n.tap(t, "wire0"), n.tap(t, "ovn0")

	var host net.PacketConn

	n.must(t, func() (err error) {
		host, err = net.ListenPacket("udp4", netip.AddrPortFrom(v4.node, 53).String())
		return err
	})

	defer host.Close()

	_ = host.SetDeadline(time.Now().Add(10 * time.Second))
	before := counts(t, n.pinDir)

	wire.send(t, v4.rx(v4.foreign, v4.node, protoUDP, udp(4000, 53, 'h', 'i')))

	buf := make([]byte, 16)
	if k, _, err := host.ReadFrom(buf); err != nil || string(buf[:k]) != "hi" {
		t.Fatalf("host received %q, %v", buf[:k], err)
	}

	toOVN := v4.rx(v4.foreign, v4.node, protoUDP, udp(53, 50000, 'o'))
	wire.send(t, toOVN)
	ovn.expect(t, toOVN)

	toBoth := ether(nodeMAC, peerMAC, 0x0806, arpPacket(2, v4.foreign, v4.node))
	wire.send(t, toBoth)
	ovn.expect(t, toBoth)

	out := v4.tx(v4.node, v4.remote, protoUDP, udp(50000, 53, 'x'))
	ovn.send(t, out)
	wire.expect(t, out)
	ovn.send(t, v4.tx(v4.pod, v4.remote, protoUDP, udp(50000, 53, 'x')))

	want := map[string]uint64{"default": 1, "snat_port": 1, "arp_reply": 1, "out": 1, "unsnated": 1}

	eventually(t, "counters", func() bool {
		got := deltas(before, counts(t, n.pinDir))
		for name := range got {
			if want[name] == 0 {
				delete(got, name) // what the kernel sends of its own accord
			}
		}

		return cmp.Equal(want, got)
	})
}

func newLiveNode(t *testing.T) *node {
	n := newNode(t)
	n.addr(t, "eth0", v4.node.String()+"/24")

	return n
}

func TestGateway_attach(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			n := newLiveNode(t)
			force := func(o *Options) { o.ForceClsact = mode.clsact }
			g := n.open(t, force)
			wantAttached(t, n, g, false, false)
			attach(t, n, g)
			wantAttached(t, n, g, true, true)
			traffic(t, n)
			before := counts(t, n.pinDir)

			t.Log("the process dies")

			if err := g.Close(); err != nil {
				t.Fatal(err)
			}

			traffic(t, n)

			t.Log("another takes over")
			g = n.open(t, force)
			wantAttached(t, n, g, false, false) // what runs is not of this load
			traffic(t, n)
			attach(t, n, g)
			attach(t, n, g)
			wantAttached(t, n, g, true, true)
			traffic(t, n)

			if got, want := counts(t, n.pinDir)["default"], before["default"]+3; got < want {
				t.Errorf("default counted %d packets over three loads, want %d", got, want)
			}

			if err := g.Detach(); err != nil {
				t.Fatal(err)
			}

			wantNothing(t, n)
		})
	}
}

// wantNothing checks that no program and no pin is left.
func wantNothing(t *testing.T, n *node) {
	t.Helper()

	if _, err := os.Stat(n.pinDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pin directory is still there: %v", err)
	}

	wire := n.tap(t, "wire0")

	var host net.PacketConn

	n.must(t, func() (err error) {
		host, err = net.ListenPacket("udp4", netip.AddrPortFrom(v4.node, 50000).String())
		return err
	})

	defer host.Close()

	_ = host.SetDeadline(time.Now().Add(10 * time.Second))

	wire.send(t, v4.rx(v4.foreign, v4.node, protoUDP, udp(53, 50000, 'o')))

	if _, _, err := host.ReadFrom(make([]byte, 16)); err != nil {
		t.Errorf("host did not get a packet in the range: %v", err)
	}
}

func TestGateway_attach_recreatedDevice(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			n := newLiveNode(t)
			g := n.open(t, func(o *Options) { o.ForceClsact = mode.clsact })
			attach(t, n, g)
			old := n.bridge
			n.remove(t, "breth0")
			eventually(t, "the bridge's program to go", func() bool {
				var bridge bool

				n.must(t, func() (err error) {
					_, bridge, err = g.Attached()
					return err
				})

				return !bridge
			})
			wantAttached(t, n, g, true, false)

			n.bridge = n.veth(t, "breth0", nodeMAC, n.peer, "ovn0")
			if n.bridge == old {
				t.Fatalf("interface index %d is used again", old)
			}

			if err := g.SetConfig(n.config()); err != nil {
				t.Fatal(err)
			}

			attach(t, n, g)
			wantAttached(t, n, g, true, true)
			traffic(t, n)

			if err := g.Detach(); err != nil {
				t.Fatal(err)
			}

			wantNothing(t, n)
		})
	}
}

// A node may change the mode, for example when its kernel is replaced under a kept bpffs.
func TestGateway_attach_modeChange(t *testing.T) {
	n := newLiveNode(t)
	for _, clsact := range []bool{false, true, false} {
		g := n.open(t, func(o *Options) { o.ForceClsact = clsact })
		attach(t, n, g)
		wantAttached(t, n, g, true, true)
		traffic(t, n)

		pins, err := filepath.Glob(filepath.Join(n.pinDir, "*_ingress*"))
		if err != nil || len(pins) != 2 {
			t.Errorf("clsact %t: pins %v, %v; want two", clsact, pins, err)
		}
	}
}

func TestGateway_AttachUplink_nothing(t *testing.T) {
	n := newNode(t)
	g := n.open(t)

	err := n.do(func() error { return g.AttachUplink(4711) })
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("attach to a missing interface: %v, want ENODEV", err)
	}
}

// A tag means another network: no packet of it is for OVN. Test runs cannot set a tag.
func TestGateway_vlan(t *testing.T) {
	n := newLiveNode(t)
	attach(t, n, n.open(t))
	wire := n.tap(t, "wire0")
	send := func(port uint16) {
		frame := v4.rx(v4.foreign, v4.node, protoTCP, tcp(80, port, flagACK))
		wire.send(t, join(frame[:12], be16(0x8100), be16(100), frame[12:]))
	}
	send(50000)
	eventually(t, "a tagged packet", func() bool { return counts(t, n.pinDir)["vlan"] == 1 })
	send(22)
	eventually(t, "a tagged packet to the host", func() bool { return counts(t, n.pinDir)["vlan"] == 2 })

	if got := counts(t, n.pinDir)["snat_port"]; got != 0 {
		t.Errorf("%d tagged packets went to OVN", got)
	}
}
