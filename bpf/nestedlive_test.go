package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

const (
	podPort = 8080
	large   = 4000                    // bytes of a datagram of three fragments
	largeIn = 3*(14+20) + (8 + large) // bytes of their frames
)

// nestedLive has two connected pods and whatever their packets need on the way.
type nestedLive struct {
	*nestedVM
	n          *Nested
	one, other NestedPod
	wire       *tap
}

func newNestedLive(t *testing.T, clsact bool) *nestedLive {
	t.Helper()

	if !clsact {
		needTCX(t)
	}

	l := &nestedLive{nestedVM: newNestedVM(t, clsact)}
	l.one = l.addPod(t, podTag, podMAC, podAddr)
	l.other = l.addPod(t, otherTag, otherMAC, otherAddr)
	l.n = l.load(t)
	l.must(t, func() error {
		return errors.Join(
			l.n.SetHost([]netip.Addr{vmAddr}), l.n.SetTags([]int{podTag, otherTag, freeTag}),
			l.n.Connect(l.one), l.n.Connect(l.other),
		)
	})

	l.wire = l.tap(t, "wire0")
	l.permanent(t, "eth0", "192.168.0.1", peerMAC)
	route(t, l.namespace, "0.0.0.0/0 via 192.168.0.1")

	for i, p := range []NestedPod{l.one, l.other} {
		l.permanent(t, fmt.Sprint("pod", i), p.Addresses[0].String(), p.MAC)
		l.direct(t, p)
		pod := l.pods[i].peer
		pod.addr(t, "eth0", p.Addresses[0].String()+"/28")
		pod.permanent(t, "eth0", "10.1.0.1", routerMAC)
		route(t, pod, "0.0.0.0/0 via 10.1.0.1")
	}

	return l
}

// permanent adds a neighbour that needs no ARP.
func (n *namespace) permanent(t testing.TB, device, addr string, mac net.HardwareAddr) {
	t.Helper()

	l, err := n.LinkByName(device)
	if err == nil {
		err = n.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(addr), HardwareAddr: mac,
		})
	}

	if err != nil {
		t.Fatalf("add neighbour %s: %v", addr, err)
	}
}

// direct routes the pod's address to its device.
func (vm *nestedVM) direct(t testing.TB, p NestedPod) {
	t.Helper()

	err := vm.RouteAdd(&netlink.Route{
		LinkIndex: p.Ifindex, Scope: netlink.SCOPE_LINK,
		Dst: netlink.NewIPNet(p.Addresses[0].AsSlice()), Src: vmAddr.AsSlice(),
	})
	if err != nil {
		t.Fatalf("add route to %s: %v", p.Addresses[0], err)
	}
}

// counted waits until exactly want has been counted since before.
func (l *nestedLive) counted(t *testing.T, before, want map[string]nestedCount) {
	t.Helper()

	var got map[string]nestedCount

	eventually(t, "the packets to be counted", func() bool {
		got = nestedDeltas(t, l.pinDir, before)
		return slices.Equal(reasonsOf(got), reasonsOf(want)) && total(got) >= total(want)
	})

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func reasonsOf(counts map[string]nestedCount) (names []string) {
	for name := range counts {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

func total(counts map[string]nestedCount) (packets uint64) {
	for _, c := range counts {
		packets += c.Packets
	}

	return packets
}

// socket opens a UDP socket with a time limit.
func (n *namespace) socket(t *testing.T, addr netip.Addr, port uint16) *net.UDPConn {
	t.Helper()

	var c *net.UDPConn

	n.must(t, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
		return err
	})
	t.Cleanup(func() { c.Close() })

	return c
}

// wantDatagram receives a datagram from c and returns its sender.
func wantDatagram(t *testing.T, c *net.UDPConn, want []byte) netip.AddrPort {
	t.Helper()

	buf := make([]byte, 65536)

	err := c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}

	k, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil || !bytes.Equal(buf[:k], want) {
		t.Fatalf("received %d bytes %.20q, %v; want %d", k, buf[:k], err, len(want))
	}

	return from
}

func sendDatagram(t *testing.T, c *net.UDPConn, to netip.AddrPort, payload []byte) {
	t.Helper()

	if _, err := c.WriteToUDPAddrPort(payload, to); err != nil {
		t.Fatal(err)
	}
}

// echo sends a ping of that many bytes from the namespace and waits for the answer.
func (n *namespace) echo(src, dst netip.Addr, size int) error {
	return n.do(func() error {
		c, err := net.ListenPacket("ip4:icmp", src.String())
		if err != nil {
			return err
		}
		defer c.Close()

		request := join(v4.ping(7)[:8], bytes.Repeat([]byte{'p'}, size))
		binary.BigEndian.PutUint16(request[2:], checksum(request))

		if _, err := c.WriteTo(request, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
			return err
		}

		buf := make([]byte, 65536)

		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}

		for {
			k, _, err := c.ReadFrom(buf)
			if err != nil {
				return fmt.Errorf("ping %s: %w", dst, err)
			}

			if buf[0] == v4.echoReply && bytes.Equal(buf[4:k], request[4:]) {
				return nil
			}
		}
	})
}

// toPod is a datagram from the wire to the first pod's podPort.
func toPod(src netip.AddrPort, payload ...byte) []byte {
	l4 := udp(src.Port(), podPort, payload...)
	return ether(podMAC, routerMAC, 0x0800, whole(v4.ip(src.Addr(), podAddr, protoUDP, l4), 60))
}

// wantTagged waits on the wire for a frame of the router's pod with that tag, and returns it.
func (l *nestedLive) wantTagged(t *testing.T, tag uint16, suffix []byte) (frame []byte) {
	t.Helper()
	l.wire.await(t, func(got []byte, vlan uint16) bool {
		if vlan != tag || !bytes.HasSuffix(got, suffix) {
			return false
		}

		frame = bytes.Clone(got)

		return true
	})

	return frame
}

func TestNested_traffic(t *testing.T) {
	for _, mode := range attachModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newNestedLive(t, mode.clsact)
			pod := l.pods[0].peer.socket(t, podAddr, podPort)
			vm := l.socket(t, vmAddr, hostPort)
			t.Run("wire", func(t *testing.T) { testNestedWire(t, l, pod, vm) })
			t.Run("vm", func(t *testing.T) { testNestedVM(t, l, pod, vm) })
			t.Run("tcp", func(t *testing.T) { testNestedTCP(t, l) })
			t.Run("load balancer", func(t *testing.T) { testNestedAnswer(t, l, pod) })
			t.Run("frames", func(t *testing.T) { testNestedFrames(t, l) })
			t.Run("limited", func(t *testing.T) { testNestedLimited(t, l, pod) })
		})
	}
}

// testNestedWire sends between the wire and the pods, and between the wire and the VM.
func testNestedWire(t *testing.T, l *nestedLive, pod, vm *net.UDPConn) {
	const rounds = 20

	before := nestedCounts(t, l.pinDir)
	remote := netip.AddrPortFrom(v4.remote, 53)

	var in, out int

	for i := range rounds {
		request := toPod(remote, 'q', byte(i))
		l.wire.send(t, corpus.Tag(podTag, request))
		wantDatagram(t, pod, []byte{'q', byte(i)})
		sendDatagram(t, pod, remote, []byte{'a', byte(i)})

		answer := l.wantTagged(t, podTag, []byte{'a', byte(i)})
		if !bytes.Equal(answer[:12], join(routerMAC, podMAC)) {
			t.Errorf("MAC addresses %x", answer[:12])
		}

		in, out = in+len(request), out+len(answer)
	}

	l.counted(t, before, map[string]nestedCount{
		"rx in": {rounds, uint64(in)}, "tx out": {rounds, uint64(out)},
	})

	t.Log("tags without a pod, and the VM's own packets")
	before = nestedCounts(t, l.pinDir)
	frame := toPod(remote, 'x')
	l.wire.send(t, corpus.Tag(freeTag, frame))
	l.wire.send(t, corpus.Tag(foreign, frame))

	datagram := v4.ip(v4.remote, vmAddr, protoUDP, udp(53, hostPort, 'v'))
	own := ether(nodeMAC, peerMAC, 0x0800, whole(datagram, 60))
	l.wire.send(t, own)
	wantDatagram(t, vm, []byte{'v'})
	l.wire.send(t, priority(own))
	wantDatagram(t, vm, []byte{'v'})

	size := uint64(len(frame))
	l.counted(t, before, map[string]nestedCount{"rx no_pod": {1, size}, "rx foreign_vlan": {1, size}})
}

// testNestedVM sends between a pod and its VM: pings and datagrams, also in fragments.
func testNestedVM(t *testing.T, l *nestedLive, pod, vm *net.UDPConn) {
	big := bytes.Repeat([]byte{'b'}, large)
	podSide, vmSide := netip.AddrPortFrom(podAddr, podPort), netip.AddrPortFrom(vmAddr, hostPort)

	for _, tt := range []struct {
		name string
		send func()
		want nestedCount
	}{
		{"ping of the VM", func() {
			if err := l.pods[0].peer.echo(podAddr, vmAddr, large); err != nil {
				t.Error(err)
			}
		}, nestedCount{3, largeIn}},
		{"ping of the pod", func() {
			if err := l.echo(vmAddr, podAddr, large); err != nil {
				t.Error(err)
			}
		}, nestedCount{3, largeIn}},
		{"datagram to the VM", func() {
			sendDatagram(t, pod, vmSide, []byte("small"))
			wantDatagram(t, vm, []byte("small"))
		}, nestedCount{1, 14 + 28 + 5}},
		{"fragments to the VM and back", func() {
			sendDatagram(t, pod, vmSide, big)
			sendDatagram(t, vm, wantDatagram(t, vm, big), big)
			wantDatagram(t, pod, big)
		}, nestedCount{3, largeIn}},
		{"fragments to the pod and back", func() {
			sendDatagram(t, vm, podSide, big)
			sendDatagram(t, pod, wantDatagram(t, pod, big), big)
			wantDatagram(t, vm, big)
		}, nestedCount{3, largeIn}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := nestedCounts(t, l.pinDir)

			tt.send()
			l.counted(t, before, map[string]nestedCount{"tx host": tt.want})
		})
	}

	t.Log("fragments without a receiver in the VM go to the wire")
	before := nestedCounts(t, l.pinDir)
	sendDatagram(t, pod, netip.AddrPortFrom(vmAddr, closed), big)

	for range 3 {
		l.wantTagged(t, podTag, big[:1000])
	}

	l.counted(t, before, map[string]nestedCount{"tx out": {3, largeIn}})
}

// testNestedTCP transfers over connections that the pod and the VM open.
func testNestedTCP(t *testing.T, l *nestedLive) {
	pod := l.pods[0].peer
	for _, tt := range []struct {
		name           string
		client, server *namespace
		at             netip.AddrPort
	}{
		{"to the VM", pod, l.namespace, netip.AddrPortFrom(vmAddr, hostPort)},
		{"to the pod", l.namespace, pod, netip.AddrPortFrom(podAddr, podPort)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := nestedCounts(t, l.pinDir)

			var server net.Listener

			tt.server.must(t, func() (err error) {
				server, err = net.Listen("tcp4", tt.at.String())
				return err
			})

			defer server.Close()
			go func() {
				if c, err := server.Accept(); err == nil {
					_, _ = io.Copy(c, c)
					c.Close()
				}
			}()

			sent := bytes.Repeat([]byte("tcp"), 100000)

			var got []byte

			tt.client.must(t, func() error {
				c, err := net.DialTimeout("tcp4", tt.at.String(), 10*time.Second)
				if err != nil {
					return err
				}
				defer c.Close()

				if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					return err
				}
				go func() {
					_, _ = c.Write(sent)
					_ = c.(*net.TCPConn).CloseWrite()
				}()

				got, err = io.ReadAll(c)

				return err
			})

			if !bytes.Equal(got, sent) {
				t.Errorf("%d of %d bytes have come back", len(got), len(sent))
			}

			counted := nestedDeltas(t, l.pinDir, before)
			if names := reasonsOf(counted); !slices.Equal(names, []string{"tx host"}) {
				t.Errorf("counted %v, want only tx host", counted)
			}

			if c := counted["tx host"]; c.Bytes < uint64(len(sent))+c.Packets*54 {
				t.Errorf("%d packets and %d bytes for %d bytes", c.Packets, c.Bytes, len(sent))
			}
		})
	}
}

// testNestedAnswer connects the VM to a load balancer's address, whose backend is its own pod. The
// test translates as the hypervisor does.
func testNestedAnswer(t *testing.T, l *nestedLive, pod *net.UDPConn) {
	vip := netip.AddrPortFrom(netip.MustParseAddr("10.96.0.9"), 53)

	var client *net.UDPConn

	l.must(t, func() (err error) {
		client, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(vip))
		return err
	})

	defer client.Close()

	port := client.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	before := nestedCounts(t, l.pinDir)

	if _, err := client.Write([]byte("lb query")); err != nil {
		t.Fatal(err)
	}

	l.wantTagged(t, 0, []byte("lb query"))

	request := toPod(netip.AddrPortFrom(vmAddr, port), []byte("lb query")...)
	l.wire.send(t, corpus.Tag(podTag, request))
	sendDatagram(t, pod, wantDatagram(t, pod, []byte("lb query")), []byte("lb answer"))
	l.wantTagged(t, podTag, []byte("lb answer"))

	answer := whole(v4.ip(vip.Addr(), vmAddr, protoUDP, udp(53, port, []byte("lb answer")...)), 60)
	l.wire.send(t, ether(nodeMAC, peerMAC, 0x0800, answer))
	wantDatagram(t, client, []byte("lb answer"))
	l.counted(t, before, map[string]nestedCount{
		"rx in": {1, uint64(len(request))}, "tx out": {1, 14 + 28 + 9},
	})
}

// testNestedFrames sends frames that only a program of the pod builds.
func testNestedFrames(t *testing.T, l *nestedLive) {
	pod := l.pods[0].tap(t, "eth0")
	payload := []byte("frame")
	frame := podFrame(podAddr, v4.remote, protoUDP, udp(1, 2, payload...))
	size := uint64(len(frame))

	before := nestedCounts(t, l.pinDir)
	for _, proto := range []uint16{etherVLAN, etherQinQ} {
		pod.send(t, join(frame[:12], be16(proto), be16(otherTag), frame[12:]))
		pod.send(t, join(frame[:12], be16(proto), be16(0), frame[12:]))
	}

	double := corpus.Tag(otherTag, frame)
	pod.send(t, corpus.Tag(podTag, double))
	l.counted(t, before, map[string]nestedCount{"tx spoofed_vlan": {5, 5*size + 4}})

	t.Log("nothing of it has reached the wire before the next frame")
	pod.send(t, frame)
	l.wire.await(t, func(got []byte, vlan uint16) bool {
		if bytes.HasSuffix(got, payload) && vlan != podTag {
			t.Errorf("a frame with tag %d is on the wire", vlan)
		}

		return bytes.HasSuffix(got, payload)
	})

	t.Log("a truncated header, and a source that is not the pod's")
	before = nestedCounts(t, l.pinDir)
	short := podFrame(podAddr, vmAddr, protoICMP, v4.ping(1))[:33]
	pod.send(t, short)
	l.wantTagged(t, podTag, short)

	spoofed := podFrame(otherAddr, vmAddr, protoICMP, v4.ping(1))
	pod.send(t, spoofed)
	l.counted(t, before, map[string]nestedCount{
		"tx out": {1, uint64(len(short))}, "tx spoofed_source": {1, uint64(len(spoofed))},
	})

	t.Log("a packet that the NIC cuts into segments")
	before = nestedCounts(t, l.pinDir)
	send := packetSender(t, l.pods[0].peer, l.pods[0].peer.up(t, "eth0"))

	long := partial(podFrame(podAddr, v4.remote, protoTCP, tcp(1, 2, flagACK, make([]byte, 31*40+7)...)))
	if err := send(gsoHeader(v4, 40), long); err != nil {
		t.Fatal(err)
	}

	l.counted(t, before, map[string]nestedCount{"tx out": {32, uint64(len(long) + 31*54)}})
}

// testNestedLimited checks that packets pass the host's end of a limited pod's veth, and skip it
// otherwise.
func testNestedLimited(t *testing.T, l *nestedLive, pod *net.UDPConn) {
	for _, limited := range []bool{true, false} {
		p := l.one
		p.Limited = limited

		l.must(t, func() error { return l.n.Connect(p) })

		sent := func() uint64 {
			dev, err := l.LinkByName("pod0")
			if err != nil {
				t.Fatal(err)
			}

			return dev.Attrs().Statistics.TxPackets
		}

		before := sent()

		l.wire.send(t, corpus.Tag(podTag, toPod(netip.AddrPortFrom(v4.remote, 53), 'l')))
		wantDatagram(t, pod, []byte{'l'})

		if got := sent() - before; (got == 1) != limited {
			t.Errorf("limited %t: %d packets have passed the host's end", limited, got)
		}
	}
}
