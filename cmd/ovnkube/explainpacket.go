package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/frame"
)

// neighbourMAC stands for the MAC address of any neighbour.
var neighbourMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}

// spec returns the packet that arguments and flags describe. A packet from the wire goes from a
// neighbour to the node, another packet from the node to a neighbour.
func (q *question) spec(args []string, defaults packetContext) (frame.Spec, error) {
	if len(args) != 3 {
		return frame.Spec{}, errors.New("want PROTOCOL SOURCE DESTINATION, as in: tcp 203.0.113.9:4242 192.0.2.10:30080")
	}

	s := frame.Spec{Proto: args[0], SrcMAC: neighbourMAC, DstMAC: defaults.mac, Payload: q.payload, VLAN: defaults.vlan}
	if q.from != "wire" {
		s.SrcMAC, s.DstMAC = defaults.mac, neighbourMAC
	}

	if s.Proto == "arp" && q.from == "wire" {
		s.DstMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}

	if q.vlan >= 0 {
		s.VLAN = uint16(q.vlan)
	}

	var err error
	if s.Src, err = addressOf(s.Proto, args[1]); err != nil {
		return s, err
	}

	if s.Dst, err = addressOf(s.Proto, args[2]); err != nil {
		return s, err
	}

	for _, flag := range []struct {
		text string
		mac  *net.HardwareAddr
	}{{q.srcMAC, &s.SrcMAC}, {q.dstMAC, &s.DstMAC}} {
		if flag.text == "" {
			continue
		}

		// ParseMAC also accepts longer addresses of other link layers.
		if *flag.mac, err = net.ParseMAC(flag.text); err != nil || len(*flag.mac) != 6 {
			return s, fmt.Errorf("%q is no MAC address", flag.text)
		}
	}

	s.ICMP, err = q.icmp(s.Dst.Addr().Is6())

	return s, err
}

// addressOf parses an address, with a port if the protocol has ports.
func addressOf(proto, text string) (netip.AddrPort, error) {
	switch proto {
	case "tcp", "udp", "sctp":
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			return ap, fmt.Errorf("%q is not an address with a port, such as 192.0.2.10:80 or [2001:db8::1]:80",
				text)
		}

		return ap, nil
	}

	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no IP address (%s has no ports)", text, proto)
	}

	return netip.AddrPortFrom(a, 0), nil
}

// icmp parses --icmp-type: request, reply, TYPE or TYPE/CODE. The default of CODE is 0.
func (q *question) icmp(isV6 bool) (frame.ICMP, error) {
	out := frame.ICMP{ID: uint16(q.icmpID)}
	switch q.icmpType {
	case "request", "reply":
		out.Type = frame.Echo(isV6, q.icmpType == "reply")
		return out, nil
	}

	typeText, codeText, hasCode := strings.Cut(q.icmpType, "/")
	if !hasCode {
		codeText = "0"
	}

	icmpType, errType := strconv.ParseUint(typeText, 10, 8)
	code, errCode := strconv.ParseUint(codeText, 10, 8)

	if errors.Join(errType, errCode) != nil {
		return out, fmt.Errorf("--icmp-type %q is none of request, reply, TYPE, TYPE/CODE", q.icmpType)
	}

	out.Type, out.Code = uint8(icmpType), uint8(code)

	return out, nil
}
