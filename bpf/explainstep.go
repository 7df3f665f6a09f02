package bpf

import (
	"fmt"
	"net/netip"
	"time"
)

// Step is one lookup of a rule, and its result.
type Step struct {
	// Asked is "address", "service", "range", "socket port", "socket", "exchange", "takeover",
	// "fragment", "protocol", "network", "learn" or "remember".
	Asked string

	// Addr is the address itself for "address" and "network". For "service", "range", "socket port"
	// and "socket" it is the address of the local side, for all others that of the remote side.
	Addr   netip.Addr
	Port   uint16        // 0: not applicable; with ICMP the echo identifier
	Proto  uint8         // IP protocol; 0: not applicable
	Answer string        // as text
	Number uint8         `json:"-"` // of the answer: 0 is negative
	Age    time.Duration // since the last use of the entry; 0: no entry, or no age
}

// String returns a line such as "service 192.0.2.1:30080/tcp: not a frontend".
func (s Step) String() string {
	subject := s.Addr.String()
	switch {
	case s.Port != 0 && s.Proto == protoICMP || s.Proto == protoICMPv6:
		subject = fmt.Sprintf("%s, %s identifier %d", s.Addr, protocolName(s.Proto), s.Port)
	case s.Port != 0:
		subject = fmt.Sprintf("%s/%s", netip.AddrPortFrom(s.Addr, s.Port), protocolName(s.Proto))
	case s.Proto != 0:
		subject = fmt.Sprintf("%s, %s", s.Addr, protocolName(s.Proto))
	}

	text := fmt.Sprintf("%s %s: %s", s.Asked, subject, s.Answer)
	if s.Age > 0 {
		text += fmt.Sprintf(", last used %s ago", s.Age.Round(time.Millisecond))
	}

	return text
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
	protoSCTP   = 132
)

func protocolName(p uint8) string {
	switch p {
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case protoSCTP:
		return "sctp"
	case protoICMP:
		return "icmp"
	case protoICMPv6:
		return "icmpv6"
	}

	return fmt.Sprintf("protocol %d", p)
}

// question describes a kind of lookup in words: its name in Step.Asked, and its answers by number.
// A larger number means the last answer.
type question struct {
	name    string
	answers []string
}

// questions has an entry for each kind of enum asked in note.h. The answers have the order of the
// enums and numbers that are named there.
var questions = map[explainAsked]question{
	explainAskedASKED_ADDRESS: {"address", []string{
		"unknown on this node",
		"the host's",
		"a VIP of a service",
		"OVN's alone",
		"another node's",
		"formerly the host's",
	}},
	explainAskedASKED_SERVICE: {"service", []string{
		"not a frontend",
		"OVN's load balancers serve it",
		"a socket of the host serves it",
	}},
	explainAskedASKED_RANGE: {"range", []string{
		"not in OVN's SNAT range %s",
		"in OVN's SNAT range %s",
	}},
	explainAskedASKED_GATE: {"socket port", []string{
		"no socket of the host has this port",
		"a socket of the host may have this port",
	}},
	explainAskedASKED_SOCKET: {"socket", []string{
		"no host socket owns the packet",
		"a host socket owns the packet",
	}},
	explainAskedASKED_EXCHANGE: {"exchange", []string{
		"OVN has not begun it",
		"OVN has begun it",
	}},
	explainAskedASKED_TAKEOVER: {"takeover", []string{
		"no connection of OVN from before the takeover",
		"a connection of OVN from before the takeover",
	}},
	explainAskedASKED_FRAGMENT: {"fragment", []string{
		"the first is not known",
		"the first went to the host",
		"the first went to OVN",
		"the first went to both",
		"the first was dropped",
	}},
	explainAskedASKED_PROTOCOL: {"protocol", []string{
		"the host does not use it with this peer, nor has a raw socket for it",
		"the host uses it with this peer, or has a raw socket for it",
	}},
	explainAskedASKED_NETWORK: {"network", []string{
		"not known as the cluster's own",
		"the cluster's own: never on the wire",
		"on the wire, inside one of the cluster's own",
	}},
	explainAskedWOULD_LEARN: {"learn", []string{
		"",
		"a packet would be remembered for its replies",
	}},
	explainAskedWOULD_REMEMBER: {"remember", []string{
		"",
		"the later fragments would follow to the host",
		"the later fragments would follow to OVN",
		"the later fragments would follow to both",
		"the later fragments would be dropped, too",
	}},
}

// step converts a lookup that the dry run has recorded.
func (e *Explainer) step(n explainNote, now time.Duration) Step {
	q := questions[explainAsked(n.Asked)]

	answer := q.answers[min(int(n.Answer), len(q.answers)-1)]
	if explainAsked(n.Asked) == explainAskedASKED_RANGE {
		answer = fmt.Sprintf(answer, e.Config.SNATPorts)
	}

	return Step{
		Asked:  q.name,
		Addr:   addrOf(n.Addr.W),
		Port:   bePort(n.Port),
		Proto:  n.Proto,
		Answer: answer,
		Number: n.Answer,
		Age:    ageOf(now, n.Ns),
	}
}
