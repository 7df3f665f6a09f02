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
func ReadFrontFlows(ctx context.Context, rundir, bridge string, flowNumbers []uint8) ([]FrontFlow, error) {
	var requests []byte

	for _, n := range flowNumbers {
		m := sumRequest(n)
		binary.BigEndian.PutUint16(m[ofHeaderLen:], ofFlowStats) // the same request, but per flow
		requests = append(requests, m...)
	}

	var out []FrontFlow

	outstanding := len(flowNumbers) // requests whose last reply has not arrived
	take := func(p ofPacket) (complete bool) {
		if p.kind != ofMultipartReply || len(p.body) < 8 || binary.BigEndian.Uint16(p.body) != ofFlowStats {
			return false
		}

		out = append(out, parseFrontFlows(p.body[8:])...)

		if binary.BigEndian.Uint16(p.body[2:])&moreReplies == 0 {
			outstanding--
		}

		return outstanding == 0
	}

	err := NewFlowCounts(rundir, bridge, flowNumbers).exchange(ctx, "flows", requests, take)
	if err != nil {
		return nil, err
	}

	return out, nil
}

// Of OpenFlow 1.4: the type of a multipart message about flows, and the flag of all replies but the
// last.
const (
	ofFlowStats = 1
	moreReplies = 1 // OFPMPF_REPLY_MORE
)

// parseFrontFlows reads entries of a reply (OpenFlow 1.4, 7.3.5.2).
func parseFrontFlows(b []byte) []FrontFlow {
	const fixed, match = 48, 4 // lengths of an entry before its match, and of the match's header

	var out []FrontFlow

	for len(b) >= fixed+match {
		length := int(binary.BigEndian.Uint16(b))
		fields := int(binary.BigEndian.Uint16(b[fixed+2:]))

		if length < fixed+match || length > len(b) || fields < match || fixed+fields > length {
			return out
		}

		if f, isFront := parseDestination(b[fixed+match : fixed+fields]); isFront {
			f.FlowCount = countAt(b[32:])
			out = append(out, f)
		}

		b = b[length:]
	}

	return out
}

// parseDestination reads the fields of a match. It returns false unless they name one destination.
func parseDestination(b []byte) (f FrontFlow, isFront bool) {
	const (
		basic, masked                                      = 0x8000, 1
		ipProto, ipv4Dst, tcpDst, udpDst, sctpDst, ipv6Dst = 10, 12, 14, 16, 18, 27
	)

	hasPort := false

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
				f.Port, hasPort = binary.BigEndian.Uint16(value), true
			}
		}
	}

	return f, f.Addr.IsValid() && f.Proto != 0 && hasPort
}
