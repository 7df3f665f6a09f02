package bpf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// A forwarding node, as Kubernetes needs it, passes a neighbour's packets on to a pod, even from
// another pod's address. Once the cluster's own networks are configured, both are dropped and
// counted.
func TestGateway_forwarding(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			if !mode.clsact {
				needTCX(t)
			}

			n := newNode(t)
			pods := n.forwarding(t)
			g := n.open(t, func(o *Options) { o.ForceClsact = mode.clsact })
			attach(t, n, g)
			wire := n.tap(t, "wire0")
			open, closed := n.config(), n.config()
			closed.Internal = closed.PodCIDRs

			for _, f := range []family{v4, v6} {
				direct := func(text string) []byte { return f.rx(f.remote, f.pod, protoUDP, udp(53, 53, []byte(text)...)) }

				spoofed := func(text string) []byte {
					return f.rx(f.pod.Next(), f.pod, protoUDP, udp(53, 53, []byte(text)...))
				}
				for _, frame := range [][]byte{direct("open"), spoofed("open")} {
					wire.send(t, frame)
					pods.received(t, "open", "closed")
				}

				before := counts(t, n.pinDir)
				n.must(t, func() error { return g.SetConfig(closed) })

				for _, tag := range []func([]byte) []byte{func(b []byte) []byte { return b }, priority} {
					wire.send(t, tag(direct("closed")))
					wire.send(t, tag(spoofed("closed")))
				}

				wire.send(t, priority(priority(direct("closed"))))
				eventually(t, "what arrives to be counted", func() bool {
					got := deltas(before, counts(t, n.pinDir))
					return got["cluster_destination"] == 2 && got["spoofed_source"] == 2 && got["nested_tag"] == 1
				})
				n.must(t, func() error { return g.SetConfig(open) })
				wire.send(t, direct("again"))
				pods.received(t, "again", "closed")
			}
		})
	}
}

// A packet with a priority tag is treated as untagged: the host's stack and the bridge get it
// without tag.
func TestGateway_priorityTag(t *testing.T) {
	needTCX(t)

	n := newNode(t)
	for _, a := range []netip.Addr{v4.node, v6.node} {
		n.addr(t, "eth0", netip.PrefixFrom(a, a.BitLen()).String())
	}

	attach(t, n, n.open(t))
	wire, ovn := n.tap(t, "wire0"), n.tap(t, "ovn0")

	var host net.PacketConn

	n.must(t, func() (err error) {
		host, err = net.ListenPacket("udp4", netip.AddrPortFrom(v4.node, 53).String())
		return err
	})

	defer host.Close()

	wire.send(t, priority(v4.rx(v4.remote, v4.node, protoUDP, udp(4000, 53, 'h', 'i'))))

	buf := make([]byte, 16)
	if k, _, err := host.ReadFrom(buf); err != nil || string(buf[:k]) != "hi" {
		t.Fatalf("host received %q, %v", buf[:k], err)
	}

	for _, f := range []family{v4, v6} {
		frame := f.rx(f.remote, f.node, protoUDP, udp(53, 50000, 'o'))
		wire.send(t, priority(frame))
		ovn.await(t, func(got []byte, vlan uint16) bool { return vlan == 0 && bytes.Equal(got, frame) })
	}
}

// priority adds a tag with VLAN 0 and a priority to a frame.
func priority(frame []byte) []byte { return corpus.Tag(5<<13, frame) }

// podTap is the far end of a node's management port.
type podTap struct{ *tap }

// forwarding makes the node forward to pods behind a port.
func (n *node) forwarding(t *testing.T) podTap {
	t.Helper()
	pods := newNamespace(t)
	n.veth(t, "mp0", net.HardwareAddr{2, 0, 0, 0, 0, 0x55}, pods, "pods")
	n.must(t, func() error {
		write := func(key, value string) error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }

		return errors.Join(write("ipv4/ip_forward", "1"), write("ipv6/conf/all/forwarding", "1"),
			write("ipv4/conf/all/rp_filter", "0"), write("ipv4/conf/eth0/rp_filter", "0"))
	})
	n.addr(t, "mp0", "10.244.1.2/24")
	n.addr(t, "mp0", "fd00:10:244:1::2/64")
	n.addr(t, "eth0", "198.51.100.2/24")
	n.addr(t, "eth0", "2001:db8:51::2/64")

	for _, f := range []family{v4, v6} {
		pods.addr(t, "pods", netip.PrefixFrom(f.pod, f.pod.BitLen()-8).String())
	}

	peer := &node{namespace: n.namespace, peer: pods}

	return podTap{peer.tap(t, "pods")}
}

// received waits for a payload and fails if never arrives first.
func (p podTap) received(t *testing.T, payload, never string) {
	t.Helper()
	p.await(t, func(frame []byte, _ uint16) bool {
		if bytes.HasSuffix(frame, []byte(never)) {
			t.Errorf("a pod has received %x", frame)
		}

		return bytes.HasSuffix(frame, []byte(payload))
	})
}
