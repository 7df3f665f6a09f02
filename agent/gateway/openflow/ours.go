package openflow

import (
	"iter"
	"net/netip"
	"strconv"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Packets to addresses of the host and of Services pass these tables (see also wire.go):
//
//	table          method     by
//	tableOurs      ours       port: Services, the SNAT range, ICMP
//	tableRange     snatRange  TCP flags, and ports that the host uses, in the SNAT range
//	tableGated     sockets    the host's socket at such a port
//	tableTakeover  snatRange  connection, during a takeover
//	tableRest      rest       protocol, for packets that none of the above decides
//	tableProto,    protocols  peer, for protocols without ports
//	tableLearned,
//	tableAnswer

// ours decides packets to the host or a VIP.
//
//	1010, 710  to an internal address without a listener: dropped, from dropUnserved
//	1000       fragments: to both sides, as the model's fragment_early
//	850        the host's connections at frontends: connections
//	800        frontends: frontend; in local gateway mode, from internalAddrs
//	700        ICMP errors, and all of ICMPv6: icmpErrors
//	600        the SNAT range of the node: tableRange
//	500        echo replies to the node: echoReplies
//	400        other ports of the node, during a takeover: tableTakeover
//	0          all others: tableRest
//
// addresses has passed fragments to conntrack. A packet that is still a fragment here could not be
// reassembled.
func (b *builder) ours() {
	for _, word := range []string{"ip", "ipv6"} {
		b.decide(verdict.FragmentEarly, tableOurs, 1000, on(word).with("nw_frag", "yes"), b.both...)
	}

	b.icmpErrors(tableOurs, 700)
	b.icmp6()
	b.echoReplies()

	for _, a := range b.nodes() {
		b.nodePorts(a)
	}

	b.connections()
	b.add(tableOurs, 0, nil, resubmit(tableRest))
}

// services returns the frontends that have a flow of their own, with their owner. In local gateway
// mode the host owns all of them, like every packet that no flow claims. Geneve to the host is
// never a frontend.
func (b *builder) services() iter.Seq2[verdict.ServiceKey, verdict.ServiceOwner] {
	return func(yield func(verdict.ServiceKey, verdict.ServiceOwner) bool) {
		if b.c == nil || b.c.Local || !b.isConnected() {
			return
		}

		for k, owner := range b.in.Tables.Services {
			geneve := k.Proto == protoUDP && k.Port == b.c.GenevePort && b.kinds[k.Addr] == verdict.AddrHost
			if words[k.Proto] == "" || owner == verdict.ServiceNone || geneve || !b.isByPort(k.Addr) {
				continue
			}

			if !yield(k, owner) {
				return
			}
		}
	}
}

// connections sends packets of the host's connections to the host, also if OVN serves a frontend at
// the local address and port. In local gateway mode the host receives them anyway.
func (b *builder) connections() {
	if b.c.Local {
		return
	}

	for _, s := range b.in.Sockets {
		word, hasPorts := words[s.Proto]
		isConnected := s.Remote.IsValid()

		if !hasPorts || !isConnected || b.kinds[s.Local.Addr()] != verdict.AddrHost {
			continue
		}

		k := verdict.ServiceKey{Addr: s.Local.Addr(), Proto: s.Proto, Port: s.Local.Port()}
		if b.in.Tables.Services[k] == verdict.ServiceOVN {
			b.decide(verdict.HostConnection, tableOurs, 850, connection(word, s.Local, s.Remote), b.toHost...)
		}
	}
}

// frontend returns the flow of one frontend. There may be tens of thousands, so it appends bytes
// instead of formatting a match. Its priority is above that of the SNAT range, because the port of
// a frontend that the host serves may be in the range.
func frontend(k verdict.ServiceKey, actions string) string {
	line := make([]byte, 0, 128)
	line = append(line, "table="...)
	line = strconv.AppendInt(line, int64(tableOurs), 10)
	line = append(append(line, ",priority=800,"...), words[k.Proto]...)

	if k.Addr.Is6() {
		line = append(line, '6')
	}

	line = append(append(append(line, ','), addressField(k.Addr, "dst")...), '=')
	line = append(k.Addr.AppendTo(line), ",tp_dst="...)
	line = strconv.AppendInt(line, int64(k.Port), 10)

	return string(append(append(line, " actions="...), actions...))
}

// nodePorts passes packets to the SNAT range of a node's address on to tableRange, and during a
// takeover all others to tableTakeover. In local gateway mode all ports of the node belong to the
// host.
func (b *builder) nodePorts(a netip.Addr) {
	if b.c.Local {
		return
	}

	for _, word := range words {
		m := proto(word, a).to(a)
		if b.c.Takeover {
			b.add(tableOurs, 400, m, resubmit(tableTakeover))
		}

		for _, p := range portMatches(b.c.SNATPorts.First, b.c.SNATPorts.Last) {
			b.add(tableOurs, 600, m.with("tp_dst", p), resubmit(tableRange))
		}
	}
}

// snatRange decides packets to the node's address and a port of the range, and packets that may
// belong to connections from before a takeover.
//
//	tableRange     500  Geneve, if its port is in the range: to the host
//	               400  TCP SYN: to the host
//	               300  to a port that the host uses: tableGated
//	               0    all others: to OVN
//	tableTakeover  400  TCP SYN: tableRest
//	               300  connections from before the takeover: to OVN
//	               0    all others: tableRest
func (b *builder) snatRange() {
	for _, word := range []string{"tcp", "tcp6"} {
		b.decide(verdict.SNATSyn, tableRange, 400, on(word).with("tcp_flags", pureSYN), b.toHost...)
		b.add(tableTakeover, 400, on(word).with("tcp_flags", pureSYN), resubmit(tableRest))
	}

	if g := b.c.GenevePort; b.inSNATRange(g) {
		b.decide(verdict.Geneve, tableRange, 500, on("udp").with("tp_dst", g), b.toHost...)
		b.decide(verdict.Geneve, tableRange, 500, on("udp6").with("tp_dst", g), b.toHost...)
	}

	b.decide(verdict.SNATPort, tableRange, 0, nil, b.toOVN...)
	b.sockets()

	for k := range b.in.Tables.Flows {
		if word, ok := words[k.Proto]; ok && b.c.Takeover && b.isNode(k.Local.Addr()) {
			b.decide(verdict.Takeover, tableTakeover, 300, connection(word, k.Local, k.Remote), b.toOVN...)
		}
	}

	b.add(tableTakeover, 0, nil, resubmit(tableRest))
}

func (b *builder) inSNATRange(port uint16) bool { return b.c.SNATPorts.Contains(port) }

// connection matches packets from a remote socket to a local one.
func connection(word string, local, remote netip.AddrPort) match {
	return proto(word, local.Addr()).from(remote.Addr()).to(local.Addr()).
		with("tp_src", remote.Port()).with("tp_dst", local.Port())
}

// sockets sends packets of the host's sockets inside the range to the host. A connected socket owns
// its connection. A listening or unconnected socket owns the port, because flows cannot check SYN
// cookies. Packets to other ports of the range do not reach tableGated. So their datapath flows
// match neither the source nor all bits of the port.
func (b *builder) sockets() {
	for _, s := range b.in.Sockets {
		word, hasPorts := words[s.Proto]
		if !hasPorts || !b.inSNATRange(s.Local.Port()) {
			continue
		}

		for _, a := range b.listeningAddrs(s.Local.Addr()) {
			toPort := proto(word, a).with("tp_dst", s.Local.Port())
			b.add(tableRange, 300, toPort, resubmit(tableGated))

			toSocket := toPort.to(a)
			if s.Remote.IsValid() {
				toSocket = connection(word, netip.AddrPortFrom(a, s.Local.Port()), s.Remote)
			}

			b.decide(verdict.HostSocket, tableGated, 200, toSocket, b.toHost...)
		}
	}

	b.decide(verdict.SNATPort, tableGated, 0, nil, b.toOVN...)
}

// listeningAddrs returns the node's addresses on which a socket bound to a receives packets. A
// socket bound to :: receives both versions.
func (b *builder) listeningAddrs(a netip.Addr) []netip.Addr {
	a = a.Unmap()

	var out []netip.Addr

	for _, n := range b.nodes() {
		if n == a || a.IsUnspecified() && (a.Is6() || n.Is4()) {
			out = append(out, n)
		}
	}

	return out
}

// rest decides packets that no port decides.
//
//	350  to an internal address without a listener: dropped, from dropUnserved
//	340  to other addresses than the host's: to the host, as not_ours
//	330  Geneve: to the host
//	320  echo requests and replies: to the host
//	     BFD: to both sides
//	310  other packets of protocols with ports, and ICMP: to the host
//	300  protocols without ports, to the node: tableProto
//	0    all others: to the host
func (b *builder) rest() {
	for _, word := range []string{"tcp", "udp", "sctp", "icmp"} {
		b.decide(verdict.Default, tableRest, 310, on(word), b.toHost...)
		b.decide(verdict.Default, tableRest, 310, on(word+"6"), b.toHost...)
	}

	for a := range b.addrsByPort() {
		if b.kinds[a] != verdict.AddrHost {
			b.decide(verdict.NotOurs, tableRest, 340, ip(a).to(a), b.toHost...)
		}
	}

	b.decide(verdict.ICMPEcho, tableRest, 320, on("icmp").with("icmp_type", icmp4Echo), b.toHost...)
	b.decide(verdict.ICMPEchoReply, tableRest, 320, on("icmp").with("icmp_type", icmp4Reply), b.toHost...)

	for _, word := range []string{"udp", "udp6"} {
		b.decide(verdict.Geneve, tableRest, 330, on(word).with("tp_dst", b.c.GenevePort), b.toHost...)
	}

	if b.c.BFD {
		for _, a := range b.hosts() {
			b.decide(verdict.BFD, tableRest, 320, proto("udp", a).to(a).with("tp_dst", bfdPort), b.both...)
		}
	}

	for _, a := range b.nodes() {
		b.add(tableRest, 300, ip(a).to(a), resubmit(tableProto))
	}

	b.decide(verdict.Default, tableRest, 0, nil, b.toHost...)
}

// protocols decides protocols without ports, to the node: to the host if the host uses the
// protocol, to OVN if tableLearned has a flow that OVN's packets to this peer have left, and
// otherwise to the host. A learned flow sets bit 0 of reg1 (see learnProtos).
func (b *builder) protocols() {
	for k := range b.in.Tables.HostProtos {
		b.decide(verdict.ProtoHost, tableProto, 300, fromPeer(k), b.toHost...)
	}

	b.add(tableProto, 0, nil, resubmit(tableLearned), resubmit(tableAnswer))
	b.decide(verdict.ProtoNS, tableAnswer, 10, match{}.with("reg1", "0x1/0x1"), b.toOVN...)
	b.decide(verdict.Default, tableAnswer, 0, nil, b.toHost...)
}

// fromPeer matches a protocol without ports from its peer, or from any peer.
func fromPeer(k verdict.NSKey) match {
	m := ip(k.Remote).with("nw_proto", k.Proto)
	if k.Remote.IsUnspecified() {
		return m
	}

	return m.from(k.Remote)
}
