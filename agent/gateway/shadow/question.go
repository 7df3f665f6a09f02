package shadow

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

const (
	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132

	etherLen   = 14 // length of an Ethernet header without tag
	etherAddrs = 12 // length of its addresses, after which a tag is inserted
)

// question is the input of the model for one sample: the packet, and the keys of all table entries
// that may decide it.
type question struct {
	dir    verdict.Direction
	frame  []byte        // complete, with its tag; missing bytes are zero
	parsed verdict.Frame // frame
	keys   bpf.Keys
}

// fillings are values of missing bytes that read as other headers than zeros do: IPv4, IPv6,
// neither.
var fillings = []byte{0x45, 0x60, 0xff}

// newQuestion converts a sample to a question. A sample has only the first bytes of its frame. So
// newQuestion returns false if bytes that may decide are missing.
func newQuestion(s bpf.Sample) (question, bool) {
	q := question{dir: s.From, frame: wireFrame(s, 0)}
	q.parsed = verdict.Parse(q.frame)

	// The missing bytes do not matter if the frame reads the same with any of them.
	if etherLen+s.L3 > len(s.Frame) {
		for _, fill := range fillings {
			if !reflect.DeepEqual(q.parsed, verdict.Parse(wireFrame(s, fill))) {
				return q, false
			}
		}
	}

	q.keys = keysOf(&q.parsed)

	return q, true
}

// wireFrame returns the frame as it was on the wire: in its full length, with fill in place of
// missing bytes, and with the tag that the NIC or the kernel has removed. For a GSO packet it
// returns the first segment.
func wireFrame(s bpf.Sample, fill byte) []byte {
	b := slices.Clone(s.Frame[:min(len(s.Frame), etherLen+s.L3)])
	for len(b) < etherLen+s.L3 {
		b = append(b, fill)
	}

	if s.TPID == 0 || len(b) < etherLen {
		return b
	}

	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.TPID), s.TCI)

	return slices.Concat(b[:etherAddrs], tag, b[etherAddrs:])
}

// keysOf returns all table keys that a rule may look up for f. A rule may look up the packet or its
// reply, and with an ICMP error the quoted packet or its reply. A reply has the reversed addresses
// and ports.
func keysOf(f *verdict.Frame) bpf.Keys {
	var k bpf.Keys
	addAddrs(&k, f.ARP.Sender, f.ARP.Target, f.IP.Target)
	addPacket(&k, &f.IP)

	if f.IP.Quote != nil {
		addPacket(&k, f.IP.Quote)
	}

	return k
}

// addAddrs adds the keys of addresses, without invalid ones and repetitions.
func addAddrs(k *bpf.Keys, addrs ...netip.Addr) {
	for _, a := range addrs {
		if a.IsValid() && !slices.Contains(k.Addrs, a) {
			k.Addrs = append(k.Addrs, a)
		}
	}
}

// addPacket adds the keys of p and of its reply.
func addPacket(k *bpf.Keys, p *verdict.Packet) {
	if !p.Src.IsValid() || !p.Dst.IsValid() {
		return
	}

	for _, q := range []*verdict.Packet{p, p.Reversed()} {
		addAddrs(k, q.Dst)

		if q.Position == verdict.Later {
			k.Datagrams = append(k.Datagrams, *q.Datagram())
		}

		hasPorts := q.Proto == protoTCP || q.Proto == protoUDP || q.Proto == protoSCTP
		if !hasPorts {
			k.Exchanges = append(k.Exchanges, verdict.NSKey{Remote: q.Src, Proto: q.Proto, ID: q.EchoID})
			k.Protos = append(k.Protos, verdict.NSKey{Remote: q.Src, Proto: q.Proto},
				verdict.NSKey{Remote: verdict.AnyRemote(q.V6), Proto: q.Proto})

			continue
		}

		k.Services = append(k.Services, verdict.ServiceKey{Addr: q.Dst, Proto: q.Proto, Port: q.DstPort})
		k.Flows = append(k.Flows, q.Flow())

		if q.Proto != protoSCTP { // the programs cannot look up SCTP sockets
			k.Ports = append(k.Ports, bpf.SocketKey{Proto: q.Proto, Port: q.DstPort})
		}
	}
}
