package verdict_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

const fuzzNow = 2 * time.Hour

// Whatever arrives at whatever node: the verdict is one that its direction has,
// nothing of the host's is OVN's, nothing leaves that must not, and only what
// the decision says changes the tables.
func FuzzDecide(f *testing.F) {
	for i, c := range corpus.Cases() {
		if i%20 == 0 {
			f.Add(uint16(i), uint8(c.Dir), c.Frame)
		}
	}

	var nodes []decided

	for _, l := range []verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Dedicated} {
		g := corpus.NewGenerator(1, corpus.Options{Layout: l, Tags: true})
		for range 100 {
			n := g.Node()
			nodes = append(nodes, decided{before: n.Tables(fuzzNow), model: n.Model(fuzzNow)})
		}
	}

	f.Fuzz(func(t *testing.T, node uint16, dir uint8, b []byte) {
		d := nodes[int(node)%len(nodes)]
		d.dir, d.frame = verdict.Direction(dir%3), verdict.Parse(b)
		d.Decision = d.model.Decide(d.dir, d.frame, fuzzNow)
		d.checkChanges(t)

		switch d.dir {
		case verdict.FromWire:
			d.checkWire(t)
		case verdict.FromOVN:
			d.checkOVN(t)
		case verdict.FromHost:
			d.checkHost(t)
		}
	})
}

// decided is a frame that a node's model has decided.
type decided struct {
	verdict.Decision
	before *verdict.Tables // equal to the model's
	model  verdict.Model
	dir    verdict.Direction
	frame  verdict.Frame
}

func (d *decided) checkChanges(t *testing.T) {
	t.Helper()

	if d.Reason.Direction() != d.dir {
		t.Errorf("%s decided what came %s", d.Reason, d.dir)
	}

	if again := d.model.Decide(d.dir, d.frame, fuzzNow); again.Reason != d.Reason {
		t.Errorf("%s, and asked again %s", d.Reason, again.Reason)
	}

	is := d.model.Tables
	if !maps.Equal(d.before.NS, is.NS) || !maps.Equal(d.before.Frags, is.Frags) || !maps.Equal(d.before.Flows, is.Flows) {
		t.Errorf("%s: deciding changed a table", d.Reason)
	}

	if d.Remember != nil && (d.dir != verdict.FromWire || d.frame.IP.Position != verdict.First) {
		t.Errorf("%s remembers %+v", d.Reason, *d.Remember)
	}

	if d.Learn != nil && d.dir != verdict.FromOVN || d.LearnFlow != nil && d.dir == verdict.FromHost {
		t.Errorf("%s learns from what came %s", d.Reason, d.dir)
	}
}

func (d *decided) checkWire(t *testing.T) {
	t.Helper()

	c, p, v := d.model.Config, &d.frame.IP, d.Verdict()
	d.oneOf(t, verdict.Host, verdict.OVN, verdict.Both, verdict.Drop)

	if v == verdict.Drop {
		d.checkBarred(t)
		return
	}

	switch {
	case !c.Connected && v != verdict.Host:
		t.Errorf("%s, without an interface to hand to", d.Reason)
	case (d.frame.Tagged && !d.frame.Priority) != (c.VLAN != 0) && d.Reason != verdict.VLAN:
		t.Errorf("%s, another network's", d.Reason)
	case d.frame.Type == corpus.EtherARP && d.frame.ARP.Op == 1 && d.host(d.frame.ARP.Target) && v != verdict.Host:
		t.Errorf("%s, an ARP request for the host", d.Reason)
	}

	d.checkTaken(t)

	if !d.toPort() || !d.host(p.Dst) {
		return
	}

	key := verdict.ServiceKey{Addr: p.Dst, Proto: p.Proto, Port: p.DstPort}
	_, taken := d.model.Tables.Flows[verdict.FlowKey{
		Proto: p.Proto, Remote: netip.AddrPortFrom(p.Src, p.SrcPort), Local: netip.AddrPortFrom(p.Dst, p.DstPort),
	}]
	encap := p.Dst == c.EncapIP && p.Proto == corpus.ProtoUDP && p.DstPort == c.GenevePort
	service := d.model.Tables.Services[key] != verdict.ServiceNone
	inRange := c.SNATPorts.Contains(p.DstPort)

	syn := p.Proto == corpus.ProtoTCP && p.Flags&(corpus.SYN|corpus.ACK|corpus.RST|corpus.FIN) == corpus.SYN
	switch {
	case v != verdict.OVN || encap:
	case c.Local:
		t.Errorf("%s, to an address of the host in local gateway mode", d.Reason)
	case syn && !service:
		t.Errorf("%s, though it opens a connection with the host", d.Reason)
	case !service && !inRange && (!c.Takeover || !taken):
		t.Errorf("%s, though port %d is the host's", d.Reason, p.DstPort)
	}
}

// checkTaken: nothing that OVN has sent takes what the host exchanges.
func (d *decided) checkTaken(t *testing.T) {
	t.Helper()

	tables := *d.model.Tables
	tables.NS = nil
	fresh := verdict.Model{Config: d.model.Config, Tables: &tables}.Decide(d.dir, d.frame, fuzzNow)

	claims := []verdict.Reason{verdict.HostSocket, verdict.ProtoHost, verdict.ICMPEchoReply}
	if v := d.Verdict(); slices.Contains(claims, fresh.Reason) && v != verdict.Host && v != verdict.Both {
		t.Errorf("%s, and %s if OVN had sent nothing", d.Reason, fresh.Reason)
	}
}

// checkBarred: what arrives is dropped for an internal address or a second tag alone, never
// what another sender sends to the host.
func (d *decided) checkBarred(t *testing.T) {
	t.Helper()

	c, p := d.model.Config, &d.frame.IP
	inside := func(a netip.Addr) bool { return within(c.Internal, a.Is6(), a) }

	claimed := inside(d.frame.ARP.Sender) || inside(p.Target)
	switch {
	case d.Reason == verdict.NestedTag && d.frame.Priority:
	case d.Reason == verdict.ClusterDestination && p.Position == verdict.Later && d.firstDropped():
	case !inside(p.Src) && !claimed && (!inside(p.Dst) || d.host(p.Dst)):
		t.Errorf("%s, from %s to %s", d.Reason, p.Src, p.Dst)
	case d.frame.Tagged && !d.frame.Priority && d.frame.VID != c.VLAN:
		t.Errorf("%s, of another network", d.Reason)
	}
}

// firstDropped reports whether the first fragment of the packet's datagram was dropped. The host
// may have got the address after that.
func (d *decided) firstDropped() bool {
	p := &d.frame.IP
	for datagram, first := range d.model.Tables.Frags {
		if datagram.Src == p.Src && datagram.Dst == p.Dst && datagram.Proto == p.Proto && first.Owner == verdict.Drop {
			return true
		}
	}

	return false
}

func (d *decided) checkOVN(t *testing.T) {
	t.Helper()

	c, p, v := d.model.Config, &d.frame.IP, d.Verdict()
	d.oneOf(t, verdict.Out, verdict.Drop, verdict.Host)

	answer := slices.ContainsFunc(c.ServiceCIDRs, func(s netip.Prefix) bool { return s.Contains(p.Src) })
	if v == verdict.Host && !c.Local && !d.host(p.Dst) && !answer {
		t.Errorf("%s: up to the host, and neither to an address of it nor from a Service", d.Reason)
	}

	if v != verdict.Out || d.Reason == verdict.EncapOut {
		return
	}

	tagged := d.frame.Tagged && (c.VLAN == 0 || d.frame.VID != c.VLAN)
	switch {
	case !c.Connected:
		t.Errorf("%s, without an uplink", d.Reason)
	case d.ofHost():
		t.Errorf("%s: leaves though the host would get the answer", d.Reason)
	case d.frame.Src != c.NodeMAC:
		t.Errorf("%s: leaves with MAC %x", d.Reason, d.frame.Src)
	case tagged, d.Reason == verdict.BFDOut, d.Reason == verdict.NeighbourOut, !p.Src.IsValid():
	case within(c.ServiceCIDRs, p.V6, p.Dst):
		t.Errorf("%s: leaves for %s", d.Reason, p.Dst)
	case within(c.PodCIDRs, p.V6, p.Src) && !within(c.RoutablePods, p.V6, p.Src):
		t.Errorf("%s: leaves from %s", d.Reason, p.Src)
	case d.host(p.Dst) && p.V6 != p.Dst.Is4():
		t.Errorf("%s: leaves for the node's own %s", d.Reason, p.Dst)
	}
}

// ofHost reports whether OVN sends in the host's place: UDP by whose ports or another
// protocol by which the host would get the answer.
func (d *decided) ofHost() bool {
	c, p := d.model.Config, d.frame.IP

	unread := d.frame.Tagged && (c.VLAN == 0 || d.frame.VID != c.VLAN)
	if unread || !d.frame.Whole || p.Src != c.Node4 && p.Src != c.Node6 || c.Local || d.Reason == verdict.NeighbourOut || d.Reason == verdict.BFDOut {
		return false
	}

	answer := p
	answer.Src, answer.Dst, answer.SrcPort, answer.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	f := verdict.Frame{Dst: c.NodeMAC, Src: d.frame.Dst, Tagged: c.VLAN != 0, VID: c.VLAN, Type: d.frame.Type, Whole: true, IP: answer}
	r := d.model.Decide(verdict.FromWire, f, fuzzNow).Reason

	return p.Proto == corpus.ProtoUDP && r == verdict.HostSocket || r == verdict.ProtoHost
}

func (d *decided) checkHost(t *testing.T) {
	t.Helper()

	c, p := d.model.Config, &d.frame.IP
	d.oneOf(t, verdict.Out, verdict.OVN)

	if d.Verdict() == verdict.OVN && !within(c.ServiceCIDRs, p.V6, p.Dst) && !within(c.Masquerade, p.V6, p.Dst) {
		t.Errorf("%s: the host's packet to %s", d.Reason, p.Dst)
	}
}

func (d *decided) oneOf(t *testing.T, of ...verdict.Verdict) {
	t.Helper()

	if !slices.Contains(of, d.Verdict()) {
		t.Errorf("%s: what came %s gets %s", d.Reason, d.dir, d.Verdict())
	}
}

// toPort reports whether the frame has a port to decide by.
func (d *decided) toPort() bool {
	p := &d.frame.IP

	return d.frame.Whole && p.Dst.IsValid() && p.Position != verdict.Later &&
		(p.Proto == corpus.ProtoTCP || p.Proto == corpus.ProtoUDP || p.Proto == corpus.ProtoSCTP)
}

func (d *decided) host(a netip.Addr) bool {
	c := d.model.Config
	return a.IsValid() && (a == c.Node4 || a == c.Node6 || d.model.Tables.Addrs[a] == verdict.AddrHost)
}

func within(prefixes []netip.Prefix, v6 bool, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() != v6 && p.Contains(a) })
}
