package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// sum is the count of a reason.
type sum struct{ Packets, Bytes uint64 }

// parcel is a frame of the mix, and the reason that must count it.
type parcel struct {
	reason string
	frame  []byte
	header [10]byte // struct virtio_net_hdr
	wire   sum      // of one
}

func single(reason string, frame []byte) parcel {
	return parcel{reason: reason, frame: frame, wire: sum{1, uint64(len(frame))}}
}

// many is a frame of 32 segments, the last of which is short.
func many(f family, reason string, frame func(l4 []byte) []byte) parcel {
	const size, payload = 100, 31*100 + 7

	p := frame(tcp(80, 22, flagACK, make([]byte, payload)...))
	if reason != "default" {
		p = frame(tcp(50000, 80, flagACK, make([]byte, payload)...))
	}

	headers := len(p) - payload

	return parcel{reason: reason, frame: p, header: gsoHeader(f, size), wire: sum{32, uint64(payload + 32*headers)}}
}

// fromWire returns the frames from the wire, in order.
func fromWire(f family) []parcel {
	rx := func(proto uint8, l4 []byte) []byte { return f.rx(f.remote, f.node, proto, l4) }
	rest := make([]byte, 16)

	mix := []parcel{
		single("default", rx(protoUDP, udp(4000, 53, 1))),
		single("default", rx(protoTCP, tcp(4000, 22, flagACK))),
		single("geneve", rx(protoUDP, udp(4000, 6081, rest...))),
		single("service", rx(protoTCP, tcp(4000, 30080, flagSYN))),
		single("service", rx(protoUDP, udp(4000, 30053, 1, 2))),
		single("service", f.rx(f.remote, f.vip, protoTCP, tcp(4000, 443, flagACK))),
		single("snat_port", rx(protoTCP, tcp(80, 50000, flagACK, 1, 2, 3))),
		single("snat_port", rx(protoUDP, udp(53, 50000, 1, 2, 3, 4))),
		single("snat_syn", rx(protoTCP, tcp(80, 50000, flagSYN))),
		single("icmp_echo", rx(f.icmp, f.ping(1))),
		single("icmp_echo_reply", rx(f.icmp, f.pong(1))),
		single("icmp_error_ovn", rx(f.icmp, f.icmpError(f.unreach, 0, f.ip(f.node, f.remote, protoUDP, udp(50000, 53))))),
		single("default", rx(protoGRE, rest)),
		single("not_ours", f.rx(f.remote, f.foreign, protoUDP, udp(4000, 53))),
		single("multicast", ether(groupMAC, peerMAC, f.etherType(), f.ip(f.remote, f.node, protoUDP, udp(4000, 53)))),
		single("malformed", rx(protoUDP, nil)[:20]),
		single("not_ip", ether(nodeMAC, peerMAC, 0x88b5, rest)),
		// to both: its first fragment has not arrived
		single("fragment_early", f.fragment(protoUDP, 1, 24, false, rest)),
		single("snat_port", f.fragment(protoUDP, 2, 0, true, udp(53, 50000, rest...))),
		single("fragment_ovn", f.fragment(protoUDP, 2, 24, false, rest)),
		single("default", f.fragment(protoUDP, 3, 0, true, udp(53, 1024, rest...))),
		single("fragment", f.fragment(protoUDP, 3, 24, false, rest)),
		many(f, "default", func(l4 []byte) []byte { return rx(protoTCP, l4) }),
	}
	if f.node.Is4() {
		return append(mix,
			single("arp_request", ether(allMAC, peerMAC, 0x0806, arpPacket(1, f.foreign, f.node))),
			single("arp_reply", ether(nodeMAC, peerMAC, 0x0806, arpPacket(2, f.foreign, f.node))))
	}

	return append(mix,
		single("nd_solicit", rx(f.icmp, neighbour(135, f.node))),
		single("nd_advert", rx(f.icmp, neighbour(136, f.foreign))))
}

// fromOVN returns the frames from OVN.
func fromOVN(f family) []parcel {
	mix := []parcel{
		single("out", f.tx(f.node, f.remote, protoUDP, udp(50000, 53, 1))),
		single("out_learned", f.tx(f.node, f.remote, f.icmp, f.ping(7))),
		single("unsnated", f.tx(f.pod, f.remote, protoUDP, udp(50000, 53, 1, 2))),
		single("svc_leak", f.tx(f.node, f.clusterIP, protoTCP, tcp(50000, 80, flagSYN))),
		single("bad_mac", ether(nodeMAC, peerMAC, f.etherType(), f.ip(f.node, f.remote, protoUDP, udp(50000, 53)))),
		single("pmtud", f.tx(f.pod, f.foreign, f.icmp, f.icmpError(f.tooBig, f.tooBigCode, f.ip(f.foreign, f.pod, protoUDP, udp(1, 2))))),
		single("hairpin", f.tx(f.vip, f.node, protoUDP, udp(50000, 53, 1, 2, 3))),
		many(f, "out", func(l4 []byte) []byte { return f.tx(f.node, f.remote, protoTCP, l4) }),
	}
	if f.node.Is4() {
		return append(mix, single("garp_guard", ether(allMAC, nodeMAC, 0x0806, arpPacket(1, f.vip, f.vip))))
	}

	return append(mix, single("neighbour_out", f.tx(f.node, f.foreign, f.icmp, neighbour(136, f.node))))
}

// fromHost returns the frames that the host sends through breth0, in layout bridged.
func fromHost(f family) []parcel {
	return []parcel{
		single("host_out", f.tx(f.node, f.remote, protoTCP, tcp(22, 4000, flagACK, 1))),
		single("host_ovn", f.tx(f.node, f.clusterIP, protoUDP, udp(4000, 53, 1))),
		many(f, "host_out", func(l4 []byte) []byte { return f.tx(f.node, f.remote, protoTCP, l4) }),
	}
}

// The programs' counts equal the sent packets and bytes, for all verdicts, and for whole packets,
// fragments and GSO packets.
func TestReadCounters_exact(t *testing.T) {
	for _, layout := range corpusLayouts {
		for _, offload := range []uint32{1, 0} {
			t.Run(fmt.Sprintf("%s offloads=%d", layout, offload), func(t *testing.T) {
				n, g := quietNode(t, layout, vethWire)
				countServices(t, g)

				for _, command := range []uint32{ethtoolTSO, ethtoolGSO} {
					n.peer.offload(t, "wire0", command, offload)
					n.peer.offload(t, "ovn0", command, offload)
					n.offload(t, "eth0", command, offload)
					n.offload(t, "breth0", command, offload)
				}

				n.offload(t, "eth0", ethtoolGRO, offload)
				m := mix{n: n, want: map[string]sum{}, ports: map[uint16]sum{}, wire: packetSender(t, n.peer, n.peer.up(t, "wire0"))}
				m.send(t, m.wire, fromWire)

				switch layout {
				case verdict.Direct:
					m.send(t, packetSender(t, n.peer, n.peer.up(t, "ovn0")), fromOVN)
				case verdict.Bridged:
					m.send(t, packetSender(t, n.namespace, n.bridge), fromHost)
					fallthrough
				default:
					m.send(t, packetSender(t, n.namespace, n.uplink), fromOVN)
				}

				m.check(t)
				m.checkServices(t, g)
			})
		}
	}
}

// mix sends each parcel a different number of times, so that reasons cannot be confused.
type mix struct {
	n     *node
	wire  sender
	times int
	want  map[string]sum
	ports map[uint16]sum // the same of what came for a Service, by the port it came to
}

func (m *mix) send(t *testing.T, by sender, parcels func(family) []parcel) {
	t.Helper()

	for _, p := range slices.Concat(parcels(v4), parcels(v6)) {
		m.times++
		m.add(p, m.times)

		for range m.times {
			if err := by(p.header, p.frame); err != nil {
				t.Fatalf("send for %s: %v", p.reason, err)
			}
		}
	}
}

func (m *mix) add(p parcel, times int) {
	s := m.want[p.reason]
	s.Packets += uint64(times) * p.wire.Packets
	s.Bytes += uint64(times) * p.wire.Bytes

	m.want[p.reason] = s
	if p.reason == "service" {
		l4 := p.frame[14+20:]
		if p.frame[14]>>4 == 6 {
			l4 = p.frame[14+40:]
		}

		port := binary.BigEndian.Uint16(l4[2:])
		of := m.ports[port]
		m.ports[port] = sum{of.Packets + uint64(times)*p.wire.Packets, of.Bytes + uint64(times)*p.wire.Bytes}
	}
}

// check waits until everything has arrived and fails on missing or extra packets.
func (m *mix) check(t *testing.T) {
	t.Helper()

	var want uint64
	for _, s := range m.want {
		want += s.Packets
	}

	eventually(t, fmt.Sprintf("%d packets", want), func() bool {
		var got uint64
		for _, s := range sums(t, m.n.pinDir) {
			got += s.Packets
		}

		return got >= want
	})

	if diff := cmp.Diff(m.want, sums(t, m.n.pinDir)); diff != "" {
		t.Errorf("counted (-sent +counted):\n%s", diff)
	}
}

// sums are the counters that are not zero.
func sums(t *testing.T, pinDir string) map[string]sum {
	t.Helper()

	counters, err := ReadCounters(pinDir)
	if err != nil {
		t.Fatal(err)
	}

	out := make(map[string]sum)

	for _, c := range counters {
		if c.Packets != 0 {
			out[c.Reason] = sum{c.Packets, c.Bytes}
		}
	}

	return out
}

// The NIC of a virtual machine provides the size of the segments, not their number.
func TestReadCounters_virtualNIC(t *testing.T) {
	var wire sender

	n, _ := quietNode(t, verdict.Direct, func(t testing.TB, n *node) int { return tapWire(t, n, &wire) })
	m := mix{n: n, want: map[string]sum{}, ports: map[uint16]sum{}}
	m.send(t, wire, fromWire)
	m.check(t)
}

// A packet merged by GRO counts as the packets that arrived.
func TestReadCounters_gro(t *testing.T) {
	n, _ := quietNode(t, verdict.Direct, vethWire)
	n.offload(t, "eth0", ethtoolGRO, 1)
	n.holdGRO(t, "eth0")
	n.peer.offload(t, "wire0", ethtoolTSO, 0) // a veth leaves GRO out for a peer that could send large packets
	seen := n.packetSocket(t, n.uplink)
	wire := packetSender(t, n.peer, n.peer.up(t, "wire0"))
	segment := func(seq uint32) []byte {
		l4 := tcp(4000, 22, flagACK, make([]byte, 100)...)
		binary.BigEndian.PutUint32(l4[4:], seq)

		const dontFragment = 0x4000 // else GRO wants identifiers that count up

		return ether(nodeMAC, peerMAC, 0x0800, ip4(ip4Header{src: v4.remote, dst: v4.node, proto: protoTCP, frag: dontFragment}, l4))
	}
	header := gsoHeader(v4, 0)
	header[1] = 0 // with a checksum to be filled in, and no segments
	m := mix{n: n, want: map[string]sum{}, ports: map[uint16]sum{}}
	seq := uint32(1)

	eventually(t, "a frame that GRO has put together", func() bool {
		for range 64 {
			p := single("default", segment(seq))
			seq += 100

			m.add(p, 1)

			if err := wire(header, p.frame); err != nil {
				t.Fatal(err)
			}
		}

		m.check(t)

		return seen.longest(t) > len(segment(0))
	})
}

// longest returns the length of the longest received frame.
func (p *tap) longest(t *testing.T) (longest int) {
	t.Helper()

	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(p.fd, buf, unix.MSG_DONTWAIT)
		if err != nil {
			return longest
		}

		longest = max(longest, n)
	}
}
