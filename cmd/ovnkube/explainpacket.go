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

// neighbour is the MAC address of an arbitrary neighbour.
var neighbour = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}

func (q *question) spec(args []string, at packetContext) (frame.Spec, error) {
	if len(args) != 3 {
		return frame.Spec{}, errors.New("want PROTOCOL SOURCE DESTINATION, as in: tcp 203.0.113.9:4242 192.0.2.10:30080")
	}

	s := frame.Spec{Proto: args[0], SrcMAC: neighbour, DstMAC: at.mac, Payload: q.payload, VLAN: at.vlan}
	if q.from != "wire" {
		s.SrcMAC, s.DstMAC = at.mac, neighbour
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

	for _, m := range []struct {
		text string
		to   *net.HardwareAddr
	}{{q.srcMAC, &s.SrcMAC}, {q.dstMAC, &s.DstMAC}} {
		if m.text == "" {
			continue
		}

		if *m.to, err = net.ParseMAC(m.text); err != nil || len(*m.to) != 6 {
			return s, fmt.Errorf("%q is no MAC address", m.text)
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

func (q *question) icmp(v6 bool) (frame.ICMP, error) {
	out := frame.ICMP{ID: uint16(q.icmpID)}
	switch q.icmpType {
	case "request", "reply":
		out.Type = frame.Echo(v6, q.icmpType == "reply")
		return out, nil
	}

	kind, code, _ := strings.Cut(q.icmpType+"/0", "/")
	code, _, _ = strings.Cut(code, "/")
	t, err := strconv.ParseUint(kind, 10, 8)
	c, errCode := strconv.ParseUint(code, 10, 8)

	if errors.Join(err, errCode) != nil {
		return out, fmt.Errorf("--icmp-type %q is none of request, reply, TYPE, TYPE/CODE", q.icmpType)
	}

	out.Type, out.Code = uint8(t), uint8(c)

	return out, nil
}
