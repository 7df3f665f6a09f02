package ovs

import (
	"context"
	"encoding/binary"
	"net/netip"
)

// FrontFlow is a flow of the agent that matches one destination: address, protocol and port.
type FrontFlow struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
	FlowCount
}

// ReadFrontFlows returns the flows of these numbers (FlowSync) that match one destination, each
// with its count since it was written.
func ReadFrontFlows(ctx context.Context, rundir, bridge string, of []uint8) ([]FrontFlow, error) {
	var question []byte

	for _, n := range of {
		m := sumRequest(n)
		binary.BigEndian.PutUint16(m[ofHeaderLen:], ofFlowStats) // the same request, but per flow
		question = append(question, m...)
	}

	var out []FrontFlow

	left := len(of)

	err := NewFlowCounts(rundir, bridge, of).once(ctx, "flows", question, func(p ofPacket) (all bool) {
		if p.kind != ofMultipartReply || len(p.body) < 8 || binary.BigEndian.Uint16(p.body) != ofFlowStats {
			return false
		}

		out = append(out, parseFrontFlows(p.body[8:])...)
		if more := binary.BigEndian.Uint16(p.body[2:])&1 != 0; !more {
			left--
		}

		return left == 0
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

const ofFlowStats = 1

// parseFrontFlows reads entries of a reply (OpenFlow 1.4, 7.3.5.2).
func parseFrontFlows(b []byte) []FrontFlow {
	const fixed, match = 48, 4

	var out []FrontFlow

	for len(b) >= fixed+match {
		length := int(binary.BigEndian.Uint16(b))
		fields := int(binary.BigEndian.Uint16(b[fixed+2:]))

		if length < fixed+match || length > len(b) || fields < match || fixed+fields > length {
			return out
		}

		if f, is := parseDestination(b[fixed+match : fixed+fields]); is {
			f.FlowCount = countAt(b[32:])
			out = append(out, f)
		}

		b = b[length:]
	}

	return out
}

// parseDestination reads the fields of a match.
func parseDestination(b []byte) (f FrontFlow, is bool) {
	const (
		basic, masked                                      = 0x8000, 1
		ipProto, ipv4Dst, tcpDst, udpDst, sctpDst, ipv6Dst = 10, 12, 14, 16, 18, 27
	)

	port := false

	for len(b) >= 4 {
		class, field, size := binary.BigEndian.Uint16(b), b[2], int(b[3])
		if len(b) < 4+size {
			return f, false
		}

		value := b[4 : 4+size]
		b = b[4+size:]

		if class != basic || field&masked != 0 {
			continue
		}

		switch field >> 1 {
		case ipProto:
			if size == 1 {
				f.Proto = value[0]
			}
		case ipv4Dst, ipv6Dst:
			f.Addr, _ = netip.AddrFromSlice(value)
		case tcpDst, udpDst, sctpDst:
			if size == 2 {
				f.Port, port = binary.BigEndian.Uint16(value), true
			}
		}
	}

	return f, f.Addr.IsValid() && f.Proto != 0 && port
}
