package bpf

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// learned is what an entry of a learned table has as its value.
type learned interface {
	gatewaySeen | gatewayFragSeen
}

// ageTable makes every entry of a learned table as old as that many seconds.
func ageTable[K any, V learned](t *testing.T, m *ebpf.Map, seconds int64) {
	t.Helper()
	// A machine just booted has no such past, but subtraction wraps on both sides.
	then := uint64(monotonic(t)) - uint64(seconds*1e9)
	aged := make(map[any]V)

	err := eachEntry(m, func(k K, v V) {
		switch v := any(&v).(type) {
		case *gatewaySeen:
			v.Ns = then
		case *gatewayFragSeen:
			v.Ns = then
		}

		aged[k] = v
	})
	for k, v := range aged {
		err = errors.Join(err, m.Put(k, v))
	}

	if err != nil || len(aged) == 0 {
		t.Fatalf("aged %d entries: %v", len(aged), err)
	}
}

func TestGateway_aging(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	ping := tx(v4.tx(v4.node, v4.remote, protoICMP, v4.ping(7)), retRedirect, "out_learned")
	pong := v4.rx(v4.remote, v4.node, protoICMP, v4.pong(7))
	gre := v4.rx(v4.remote, v4.node, protoGRE, make([]byte, 8))

	runStep(t, n, g, 0, ping)
	runStep(t, n, g, 1, tx(v4.tx(v4.node, v4.remote, protoGRE, make([]byte, 8)), retRedirect, "out_learned"))
	ageTable[gatewayNsKey, gatewaySeen](t, g.objs.Ns, 55)
	runStep(t, n, g, 2, rx(pong, retNext, "icmp_echo_reply_ns"))
	ageTable[gatewayNsKey, gatewaySeen](t, g.objs.Ns, 61)
	runStep(t, n, g, 3, rx(pong, retNext, "icmp_echo_reply"))
	runStep(t, n, g, 4, rx(gre, retRedirect, "proto_ns"))
	ageTable[gatewayNsKey, gatewaySeen](t, g.objs.Ns, 601)
	runStep(t, n, g, 4, rx(gre, retNext, "default"))
	runStep(t, n, g, 5, ping)
	runStep(t, n, g, 6, rx(pong, retNext, "icmp_echo_reply_ns"))

	later := v4.fragment(protoUDP, 1, 24, false, make([]byte, 16))
	runStep(t, n, g, 7, rx(v4.fragment(protoUDP, 1, 0, true, udp(53, 50000, make([]byte, 16)...)), retRedirect, "snat_port"))
	ageTable[gatewayFragKey, gatewayFragSeen](t, g.objs.Frags, 25)
	runStep(t, n, g, 8, rx(later, retRedirect, "fragment_ovn"))
	ageTable[gatewayFragKey, gatewayFragSeen](t, g.objs.Frags, 31)
	runStep(t, n, g, 9, rx(later, retNext, "fragment_early"))
}

// A pod that pings the whole world costs others their oldest entries only.
func TestGateway_fullNSTable(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	size := int(g.objs.Ns.MaxEntries())
	remote := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18 + byte(i>>16), byte(i >> 8), byte(i)}) }

	n.must(t, func() error {
		for i := range size + 4096 {
			opts := ebpf.RunOptions{
				Data:    v4.tx(v4.node, remote(i), protoICMP, v4.ping(uint16(i))),
				Context: skbuff{Ifindex: uint32(n.bridge)},
			}
			if _, err := g.progs[bridgeIngress].Run(&opts); err != nil {
				return err
			}
		}

		return nil
	})

	last := size + 4095
	runStep(t, n, g, last, rx(v4.rx(remote(last), v4.node, protoICMP, v4.pong(uint16(last))), retNext, "icmp_echo_reply_ns"))

	sizes, err := tableSizes(n.pinDir)
	if err != nil || sizes["ns"] > size || sizes["ns"] < size/2 {
		t.Errorf("ns has %d entries of %d, %v", sizes["ns"], size, err)
	}
}

// A node is cleaned up after its devices are gone, too.
func TestGateway_Detach_withoutDevices(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			n := newNode(t)
			g := n.open(t, func(o *Options) { o.ForceClsact = mode.clsact })
			attach(t, n, g)
			n.remove(t, "eth0")
			n.remove(t, "breth0")

			if err := g.Detach(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The kernel's stack must not see what OVS reads through AF_PACKET.
func TestSteal(t *testing.T) {
	n := newLiveNode(t)

	s, err := NewSteal(n.clsact())
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(s.Attach(n.uplink), s.Attach(n.uplink), s.Close()); err != nil {
		t.Fatal(err)
	}

	attach(t, n, n.open(t))
	n.tap(t, "wire0").send(t, v4.rx(v4.foreign, v4.node, protoICMP, v4.ping(1)))
	eventually(t, "the packet", func() bool { return counts(t, n.pinDir)["icmp_echo"] == 1 })

	var filters int

	n.must(t, func() error {
		l, err := n.LinkByIndex(n.uplink)
		if err != nil {
			return err
		}

		list, err := n.FilterList(l, 0xfffffff2) // the parent of clsact's ingress filters
		filters = len(list)

		return err
	})

	if filters != 1 {
		t.Errorf("%d filters, want one: attaching is idempotent", filters)
	}
}

// Ours runs first, and what it leaves to the host goes on to the others on the hook.
func TestGateway_othersStillRun(t *testing.T) {
	n := newLiveNode(t)

	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcActionShot), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drop.Close()

	var other link.Link

	err = n.do(func() (err error) {
		other, err = link.AttachTCX(link.TCXOptions{Interface: n.uplink, Program: drop, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if errors.Is(err, link.ErrNotSupported) {
		t.Skip("kernel has no tcx (before 6.6): clsact has one filter of ours alone")
	}

	if err != nil {
		t.Fatal(err)
	}

	defer other.Close()

	attach(t, n, n.open(t))
	wire, ovn := n.tap(t, "wire0"), n.tap(t, "ovn0")
	toOVN := v4.rx(v4.foreign, v4.node, protoUDP, udp(53, 50000, 'o'))
	wire.send(t, toOVN)
	ovn.expect(t, toOVN)

	var host net.PacketConn

	n.must(t, func() (err error) {
		host, err = net.ListenPacket("udp4", netip.AddrPortFrom(v4.node, 53).String())
		return err
	})

	defer host.Close()

	_ = host.SetDeadline(time.Now().Add(10 * time.Second))

	wire.send(t, v4.rx(v4.foreign, v4.node, protoUDP, udp(4000, 53, '1')))
	eventually(t, "the first packet", func() bool { return counts(t, n.pinDir)["default"] == 1 })

	if err := other.Close(); err != nil {
		t.Fatal(err)
	}

	wire.send(t, v4.rx(v4.foreign, v4.node, protoUDP, udp(4000, 53, '2')))

	buf := make([]byte, 16)
	if k, _, err := host.ReadFrom(buf); err != nil || string(buf[:k]) != "2" {
		t.Errorf("host received %q, %v; want what came after the other program went", buf[:k], err)
	}
}
