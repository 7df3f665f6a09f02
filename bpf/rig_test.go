package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

var corpusLayouts = [...]verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Dedicated}

// rig runs a layout's programs as if on a node of the corpus.
type rig struct {
	*node0
	g      *Gateway
	layout verdict.Layout
	tags   *tagger
	node   *corpus.Node
	since  time.Duration // when the node was set
	last   [verdict.ReasonCount]uint64
}

// node0 is the machine. Its name would hide the corpus' node.
type node0 = node

// newRig opens the sockets of the corpus' nodes.
func newRig(t testing.TB, layout verdict.Layout) *rig {
	t.Helper()
	n := newNode(t)
	c := n.config()
	c.Layout = layout
	g := n.open(t, func(o *Options) { o.Config = c })
	r := &rig{node0: n, g: g, layout: layout, tags: newTagger(t, g)}
	r.openSockets(t, "eth0")

	return r
}

// openSockets adds the sockets' addresses to the device.
func (r *rig) openSockets(t testing.TB, device string) {
	t.Helper()

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		r.addr(t, device, fmt.Sprintf("%s/%d", f.Node, f.Node.BitLen()-8))
	}

	listeners := make(map[netip.AddrPort]net.Listener)

	for _, s := range corpus.Cases()[0].Node.Sockets {
		r.must(t, func() error { return openSocket(t, s, listeners) })
	}
}

func openSocket(t testing.TB, s verdict.Socket, listeners map[netip.AddrPort]net.Listener) error {
	switch {
	case s.Proto == corpus.ProtoUDP && !s.Remote.IsValid():
		c, err := net.ListenPacket("udp", s.Local.String())
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}

		return err
	case s.Proto == corpus.ProtoUDP:
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(s.Local), net.UDPAddrFromAddrPort(s.Remote))
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}

		return err
	case s.Proto == corpus.ProtoTCP && !s.Remote.IsValid():
		l, err := listen(s.Local.Addr(), s.Local.Port(), func(int) error { return nil })
		if err == nil {
			t.Cleanup(func() { l.Close() })

			listeners[s.Local] = l
		}

		return err
	case s.Proto == corpus.ProtoTCP && listeners[s.Local] != nil:
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(s.Remote)}

		client, err := d.Dial("tcp", s.Local.String())
		if err != nil {
			return err
		}

		server, err := listeners[s.Local].Accept()
		if err == nil {
			t.Cleanup(func() { server.Close() })
		}

		t.Cleanup(func() { client.Close() })

		return err
	}

	return fmt.Errorf("no way to open socket %+v", s)
}

// config0 returns the configuration of a node of the corpus on this machine.
func (r *rig) config0(c *verdict.Config) Config {
	out := Config{Config: *c, Layout: r.layout}
	if c.Connected {
		out.Uplink, out.Bridge = r.uplink, r.bridge
	}

	out.Connected = false // not used

	return out
}

// set sets the programs' tables and settings to those of n.
func (r *rig) set(t testing.TB, n *corpus.Node) {
	t.Helper()
	r.node, r.since = n, monotonic(t)
	forget(t, r.g)

	addrs := make(map[netip.Addr]verdict.AddrKind)
	for a, k := range n.Addrs {
		addrs[a] = k
	}

	owners := make(map[verdict.ServiceKey]verdict.ServiceOwner)
	for k, o := range n.Services {
		owners[k] = o
	}

	var protos []verdict.NSKey
	for k := range n.HostProtos {
		protos = append(protos, verdict.NSKey{Remote: k.Remote, Proto: k.Proto})
	}

	var gates []SocketKey
	for _, s := range n.Sockets {
		gates = append(gates, SocketKey{s.Proto, s.Local.Port()})
	}

	for _, s := range n.Gates {
		gates = append(gates, SocketKey(s))
	}

	err := errors.Join(r.g.SetConfig(r.config0(&n.Config)), r.g.SyncAddrs(addrs), r.g.SyncServices(owners),
		r.g.SyncHostProtos(found(protos)), r.g.SyncHostSockets(gates), r.learn(n))
	if err != nil {
		t.Fatal(err)
	}
}

// found is a scan with a constant result.
func found(protos ...[]verdict.NSKey) func() ([]verdict.NSKey, error) {
	return func() ([]verdict.NSKey, error) { return slices.Concat(protos...), nil }
}

// learn adds the learned and seeded entries of n.
func (r *rig) learn(n *corpus.Node) error {
	before := func(age time.Duration) gatewaySeen { return gatewaySeen{Ns: uint64(r.since - age)} }

	var errs []error
	for k, age := range n.NS {
		errs = append(errs, r.g.objs.Ns.Put(exchangeCell(k), before(age)))
	}

	for k, f := range n.Frags {
		first := gatewayFragSeen{Ns: uint64(r.since - f.Seen), Owner: uint8(slices.Index(fragmentOwners[:], f.Owner))}
		errs = append(errs, r.g.objs.Frags.Put(datagramCell(k), first))
	}

	errs = append(errs, r.g.Flows(func(verdict.FlowKey, time.Duration) bool { return false }))
	for k, age := range n.Flows {
		errs = append(errs, r.g.SeedFlows([]verdict.FlowKey{k}), r.g.objs.Takeover.Put(flowCell(k), before(age)))
	}

	return errors.Join(errs...)
}

// result is the outcome of a frame.
type result struct {
	ret     uint32
	mark    uint32
	reasons string // of which each has counted, joined
	out     []byte
	err     error
}

// send sends a frame through the programs.
func (r *rig) send(t testing.TB, dir verdict.Direction, frame []byte) result {
	t.Helper()

	h, ifindex := r.hook(dir), r.uplink
	if h.onBridge {
		ifindex = r.bridge
	}

	proto, tci, frame := corpus.Untag(frame)
	ctx := skbuff{Ifindex: uint32(ifindex), CB: [5]uint32{uint32(bePort(proto)), uint32(tci)}}

	var after skbuff

	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: &ctx, ContextOut: &after}
	s := result{}
	s.err = r.do(func() (err error) {
		s.ret, err = r.tags.progs[h.name].Run(&opts)
		return err
	})
	s.out, s.mark, s.reasons = opts.DataOut, after.Mark, strings.Join(r.moved(t), " ")

	return s
}

// hook returns the hook that sees frames of this direction.
func (r *rig) hook(dir verdict.Direction) hook {
	hooks := r.g.hooks()

	switch dir {
	case verdict.FromWire:
		return hooks[0]
	case verdict.FromOVN:
		return hooks[1]
	}

	return hooks[2]
}

// moved returns the reasons that have counted since the last call.
func (r *rig) moved(t testing.TB) (names []string) {
	t.Helper()

	var cpus []gatewayCells
	if err := r.g.objs.Counters.Lookup(uint32(0), &cpus); err != nil {
		t.Fatal(err)
	}

	for i := range r.last {
		var sum uint64
		for _, cpu := range cpus {
			sum += cpu.Reason[i].Packets
		}

		if sum != r.last[i] {
			names = append(names, verdict.Reason(i).String())
		}

		r.last[i] = sum
	}

	return names
}

func monotonic(t testing.TB) time.Duration {
	t.Helper()

	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}

	return time.Duration(now.Nano())
}
