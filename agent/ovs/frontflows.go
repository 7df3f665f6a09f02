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
		// ofp_flow_stats_request and ofp_aggregate_stats_request have the same fields.
		binary.BigEndian.PutUint16(m[ofHeaderLen:], ofFlowStats)
		requests = append(requests, m...)
	}

	var out []FrontFlow

	outstanding := len(flowNumbers) // requests whose last reply has not arrived
	take := func(p ofPacket) (complete bool) {
		if p.kind != ofMultipartReply || len(p.body) < multipartLen {
			return false
		}

		kind, flags := binary.BigEndian.Uint16(p.body), binary.BigEndian.Uint16(p.body[2:])
		if kind != ofFlowStats {
			return false
		}

		out = append(out, parseFrontFlows(p.body[multipartLen:])...)

		if flags&moreReplies == 0 {
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
	ofFlowStats = 1 // OFPMP_FLOW
	moreReplies = 1 // OFPMPF_REPLY_MORE
)

// parseFrontFlows reads entries of a reply: ofp_flow_stats of OpenFlow 1.4, 7.3.5.2. An entry
// begins with its length, has the packets and bytes at offset 32, and ends in the match: ofp_match,
// 7.2.2, which is its type, its length, and OXM fields.
func parseFrontFlows(b []byte) []FrontFlow {
	const countsAt, matchAt, matchHeader = 32, 48, 4

	var out []FrontFlow

	for len(b) >= matchAt+matchHeader {
		length := int(binary.BigEndian.Uint16(b))
		matchLen := int(binary.BigEndian.Uint16(b[matchAt+2:])) // with its header

		if length < matchAt+matchHeader || length > len(b) || matchLen < matchHeader || matchAt+matchLen > length {
			return out
		}

		if f, isFront := parseDestination(b[matchAt+matchHeader : matchAt+matchLen]); isFront {
			f.FlowCount = countAt(b[countsAt:])
			out = append(out, f)
		}

		b = b[length:]
	}

	return out
}

// parseDestination reads the OXM fields of a match (OpenFlow 1.4, 7.2.2.2). It returns false unless
// they name one destination, without masks. A field is
//
//	class uint16, field 7 bits, has a mask 1 bit, length of the value uint8, value
func parseDestination(b []byte) (f FrontFlow, isFront bool) {
	const (
		header  = 4
		basic   = 0x8000 // OFPXMC_OPENFLOW_BASIC
		hasMask = 1
		ipProto = 10 // OXM_OF_IP_PROTO
		ipv4Dst = 12
		tcpDst  = 14
		udpDst  = 16
		sctpDst = 18
		ipv6Dst = 27
	)

	hasPort := false

	for len(b) >= header {
		class, field, size := binary.BigEndian.Uint16(b), b[2], int(b[3])
		if len(b) < header+size {
			return f, false
		}

		value := b[header : header+size]
		b = b[header+size:]

		if class != basic || field&hasMask != 0 {
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
