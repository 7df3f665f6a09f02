package corpus

import (
	"math/rand/v2"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Options restricts the output of a Generator.
type Options struct {
	Layout verdict.Layout // zero: Direct
	// Tags enables VLAN tags and, in bridged, nodes with a gateway VLAN.
	Tags bool
	// Mangle enables frames that are truncated, have a flipped bit or a malformed header. OVS parses
	// some of them differently from the model.
	Mangle bool
}

// Generator makes random nodes, and frames that are likely to match a rule of the node or to miss
// it narrowly. Equal seeds and options give equal output.
type Generator struct {
	rng     *rand.Rand
	options Options
	family  Family
	dir     verdict.Direction
}

// NewGenerator returns a Generator in its initial state.
func NewGenerator(seed uint64, o Options) *Generator {
	return &Generator{rng: rand.New(rand.NewPCG(seed, 0)), options: o}
}

func pick[T any](g *Generator, of ...T) T { return of[g.rng.IntN(len(of))] }

// oneIn returns true once in n times.
func (g *Generator) oneIn(n int) bool { return g.rng.IntN(n) == 0 }

// Node returns a configuration and tables. All nodes of all generators have the same sockets.
func (g *Generator) Node() *Node {
	return newNode("random", func(n *Node) {
		g.mode(n)
		g.config(&n.Config)
		g.tables(n)
	})
}

func (g *Generator) mode(n *Node) {
	n.Config.Mode = verdict.Mode{BFD: g.oneIn(2), InSync: g.oneIn(2), Takeover: g.oneIn(2)}

	n.Config.Local, n.Config.MTU = g.oneIn(3), pick(g, 0, 60, 200, mtu)
	if g.options.Tags && g.options.Layout == verdict.Bridged && g.oneIn(3) {
		n.Config.VLAN = vlan
	}
}

func (g *Generator) config(c *verdict.Config) {
	if g.options.Layout == verdict.Direct && g.oneIn(3) {
		c.EncapIP = pick(g, V4.Encap, V6.Encap)
	}

	switch g.rng.IntN(8) {
	case 0:
		c.Node4 = netip.Addr{}
	case 1:
		c.Node6 = netip.Addr{}
	}

	switch g.rng.IntN(8) {
	case 0:
		c.SNATPorts = cluster.PortRange{First: 1, Last: nodePort}
	case 1:
		c.SNATPorts = cluster.PortRange{First: 32768, Last: 40959}
	}

	switch g.rng.IntN(8) {
	case 0:
		c.ServiceCIDRs, c.PodCIDRs = nil, nil
	case 1:
		c.GenevePort = genevePort + 1
	case 2:
		c.Masquerade = nil
	case 3:
		c.RoutablePods = nil
	case 4:
		c.Internal = nil
	case 5:
		c.External = nil
	case 6:
		c.PodTunnels = nil
	}

	c.Connected = !g.oneIn(10)
}

func (g *Generator) tables(n *Node) {
	for _, f := range both {
		for _, a := range []netip.Addr{f.Second, f.Management, f.VIP, f.Egress, f.Peer, f.Encap, f.Former} {
			if g.oneIn(6) {
				delete(n.Addrs, a)
			}
		}

		if g.oneIn(4) {
			n.Addrs[f.Foreign] = pick(g, verdict.AddrHost, verdict.AddrVIP, verdict.AddrOVN, verdict.AddrPeer, verdict.AddrFormer)
		}
	}

	if g.oneIn(4) {
		n.Addrs[routerLLA] = pick(g, verdict.AddrHost, verdict.AddrOVN)
	}

	for _, f := range both {
		for _, port := range []uint16{nodePort, hostedPort, hostPort} {
			if g.oneIn(6) {
				delete(n.Services, verdict.ServiceKey{Addr: f.Node, Proto: ProtoTCP, Port: port})
			}
		}

		n.Services[verdict.ServiceKey{Addr: f.VIP, Proto: ProtoTCP, Port: vipPort}] = pick(g, verdict.ServiceOVN, verdict.ServiceOVN, verdict.ServiceHost)
	}
}

// Frame returns a frame for n, and its direction.
func (g *Generator) Frame(n *Node) (verdict.Direction, []byte) {
	g.family = pick(g, V4, V6)

	g.dir = pick(g, verdict.FromWire, verdict.FromWire, verdict.FromWire, verdict.FromOVN)
	if g.options.Layout == verdict.Bridged && g.oneIn(6) {
		g.dir = verdict.FromHost
	}

	b := g.whole()
	if g.options.Mangle {
		b = g.mangle(b)
	}

	if g.options.Tags {
		b = g.tags(n, b)
	}

	return g.dir, b
}

func (g *Generator) mangle(b []byte) []byte {
	if g.oneIn(10) {
		b = b[:14+g.rng.IntN(len(b)-14+1)]
	}

	if g.oneIn(20) && len(b) > 14 {
		b[14+g.rng.IntN(len(b)-14)] ^= 1 << g.rng.IntN(8)
	}

	return b
}

// tags adds tags, in most cases those of the node's network.
func (g *Generator) tags(n *Node, b []byte) []byte {
	own := n.Config.VLAN != 0 && g.dir != verdict.FromHost
	if !g.oneIn(12) {
		if own {
			return Tag(n.Config.VLAN|uint16(g.rng.IntN(8))<<13, b) // any priority
		}

		return b
	}

	switch g.rng.IntN(5) {
	case 0:
		return Tag(pick[uint16](g, 0, 1, vlan-1, vlan+1, 4095), b)
	case 1:
		return Tag(vlan, b)
	case 2:
		return Tag(pick[uint16](g, 0, vlan), tag(pick[uint16](g, EtherVLAN, EtherQinQ), pick[uint16](g, 0, vlan), b))
	case 3:
		return tag(EtherQinQ, pick[uint16](g, 0, vlan), b)
	}

	return b
}

func (g *Generator) whole() []byte {
	switch n := g.rng.IntN(26); {
	case n == 0:
		return g.ether(pick[uint16](g, 0x88b5, EtherLLDP, 0x0842, 0x0805, 0x0807), make([]byte, 46))
	case n < 4:
		g.family = V4
		return g.ether(EtherARP, g.arp())
	case n < 7:
		g.family = V6
		return g.ether(EtherIPv6, g.neighbour())
	case n == 7:
		return g.ip(g.tunnel())
	case n < 11:
		return g.ip(g.fragmentOfDatagram())
	case n == 11:
		return g.ip(g.bfd())
	case n < 14:
		return g.ip(g.rare())
	}

	return g.ip(g.packet(g.source(), g.dest(), 0))
}

func (g *Generator) ip(p []byte) []byte {
	if g.family.v6() {
		return g.ether(EtherIPv6, p)
	}

	return g.ether(EtherIPv4, p)
}

// ether returns a frame, in most cases to the node or from it.
func (g *Generator) ether(proto uint16, payload []byte) []byte {
	dst, src := NodeMAC, PeerMAC
	if g.dir != verdict.FromWire {
		dst, src = PeerMAC, NodeMAC
		if g.oneIn(8) {
			src = OtherMAC
		}
	}

	if g.oneIn(6) {
		dst = pick(g, Broadcast, Group4, Group6, OtherMAC)
	}

	return Ether(dst, src, proto, payload)
}

func (g *Generator) arp() []byte {
	of := []netip.Addr{
		V4.Node, V4.Second, V4.Remote, V4.Foreign, V4.VIP, V4.Egress, V4.Peer, V4.Encap, netip.IPv4Unspecified(), V4.Pod, V4.InnerPeer, V4.NextHop,
	}

	sender, target := pick(g, of...), pick(g, of...)
	if g.oneIn(3) {
		target = sender
	}

	return ARP(pick[uint16](g, 1, 1, 1, 2, 2, 3), PeerMAC, sender, target)
}

func (g *Generator) neighbour() []byte {
	of := []netip.Addr{V6.Node, V6.Second, V6.Remote, V6.Foreign, V6.VIP, V6.Egress, V6.Peer, V6.Encap, routerLLA, hostLLA, V6.Pod, V6.InnerPeer, V6.NextHop}

	l4 := Advert(pick(g, of...), g.oneIn(2))
	switch g.rng.IntN(4) {
	case 0, 1:
		l4 = Solicit(pick(g, of...))
	case 2:
		l4 = discovery(pick[uint8](g, 132, 133, 134, 137, 138), 0, make([]byte, 32))
	}

	dst := pick(g, V6.Node, routerLLA, allNodes, V6.Foreign)
	if g.dir != verdict.FromWire {
		dst = pick(g, allNodes, allNodes, V6.Foreign, V6.Remote, V6.Node)
	}

	p := IP{Src: g.source(), Dst: dst, L4: l4, TTL: 255}
	if p.Src.Is4() {
		p.Src = V6.Node
	}

	if g.oneIn(4) {
		p.Ext = g.extensions(2)
	}

	return p.Bytes()
}
