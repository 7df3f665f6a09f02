package shadow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

func TestMain(m *testing.M) { os.Exit(testnode.Main(m)) }

// rig is the programs of a layout on real devices, with a Shadow.
type rig struct {
	*Shadow
	out            io.Writer
	layout         verdict.Layout
	gateway        *bpf.Gateway
	uplink, bridge int
	device         map[verdict.Direction]int // on which a frame is sent to come from there
	socket         int
	begun          atomic.Int32 // how often programs were found and followed
}

// Write receives the log, which reports when Shadow follows programs.
func (r *rig) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("decisions are compared with the model")) {
		r.begun.Add(1)
	}

	return r.out.Write(line)
}

// newRig: plant is a fault in the model's input, or nil.
func newRig(t *testing.T, layout verdict.Layout, plant func(*verdict.Config)) *rig {
	t.Helper()
	r := &rig{out: t.Output(), layout: layout, device: map[verdict.Direction]int{}}
	r.uplink, r.device[verdict.FromWire] = veth(t, "eth0", "wire0")

	r.bridge, r.device[verdict.FromOVN] = veth(t, "breth0", "ovn0")
	if layout != verdict.Direct { // what OVN sends leaves by the uplink itself
		r.device[verdict.FromOVN], r.device[verdict.FromHost] = r.uplink, r.bridge
	}

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		testnode.Run(t, "ip", "addr", "add", fmt.Sprintf("%s/%d", f.Node, f.Node.BitLen()), "dev", "eth0", "nodad")
	}

	listen(t, corpus.Cases()[0].Node)

	pins := t.TempDir() + "/bpf"
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(pins, 0) })

	log := slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))

	var err error

	r.gateway, err = bpf.Open(bpf.Options{PinDir: pins + "/node", Log: log, Config: r.config(&corpus.Cases()[0].Node.Config), Clsact: clsact()})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { r.gateway.Close() })

	if err := errors.Join(r.gateway.AttachBridge(r.bridge), r.gateway.AttachUplink(r.uplink)); err != nil {
		t.Fatal(err)
	}

	r.Shadow = New(Options{PinDir: pins + "/node", Rate: 1 << 20, Log: log})
	r.plant = plant
	r.run(t, pins+"/node")

	if r.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(r.socket) })

	return r
}

// clsact attaches where the kernel has no tcx.
func clsact() bpf.ClsactFuncs {
	return bpf.ClsactFuncs{
		Attach: link.AttachClsact, Detach: link.DetachClsact, Attached: link.ClsactAttached,
	}
}

// run compares until the test ends. It returns when the comparison has started.
func (r *rig) run(t *testing.T, pins string) {
	t.Helper()

	m, err := bpf.OpenMonitor(pins, bpf.MonitorOptions{})
	if errors.Is(err, bpf.ErrNoTCX) {
		if err := r.Run(t.Context()); err != nil { // it says so, and the agent goes on
			t.Error(err)
		}

		t.Skip(err)
	}

	if err != nil {
		t.Fatal(err)
	}

	m.Close()

	ctx, cancel := context.WithCancel(context.Background())

	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	device := r.device[verdict.FromWire]

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)

	testnode.Eventually(t, "the first comparison", func() error {
		lldp := corpus.Ether(corpus.NodeMAC, corpus.PeerMAC, corpus.EtherLLDP, make([]byte, 50))
		if err := unix.Sendto(fd, lldp, 0, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
			return err
		}

		if s := r.Stats(); s.Compared["not_ip"] == 0 {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})
}

// veth makes a pair with room for frames that are longer than the nodes' MTU.
func veth(t *testing.T, name, peer string) (index, peerIndex int) {
	t.Helper()
	testnode.Run(t, "ip", "link", "add", name, "address", net.HardwareAddr(corpus.NodeMAC[:]).String(), "mtu", "9000", "type", "veth", "peer", "name", peer, "mtu", "9000")
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", name) })

	for _, device := range []string{name, peer} {
		testnode.Run(t, "ip", "link", "set", device, "up")
	}

	a, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}

	b, err := net.InterfaceByName(peer)
	if err != nil {
		t.Fatal(err)
	}

	return a.Index, b.Index
}

// listen opens the node's sockets, except connections of TCP.
func listen(t *testing.T, n *corpus.Node) {
	t.Helper()

	for _, s := range n.Sockets {
		switch {
		case s.Proto == corpus.ProtoUDP && s.Remote.IsValid():
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(s.Local), net.UDPAddrFromAddrPort(s.Remote))
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { c.Close() })
		case s.Proto == corpus.ProtoUDP:
			c, err := net.ListenPacket("udp", s.Local.String())
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { c.Close() })
		case !s.Remote.IsValid():
			l, err := net.Listen("tcp", s.Local.String())
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { l.Close() })
		}
	}
}

// config is the configuration of a node of the corpus on this machine.
func (r *rig) config(c *verdict.Config) bpf.Config {
	out := bpf.Config{Config: *c, Layout: r.layout}
	if c.Connected {
		out.Uplink, out.Bridge = r.uplink, r.bridge
	}

	out.Connected = false // not used

	return out
}

// set sets the programs' tables and settings to those of n, except learned entries.
func (r *rig) set(t *testing.T, n *corpus.Node) {
	t.Helper()

	addrs, owners := map[netip.Addr]verdict.AddrKind{}, map[verdict.ServiceKey]verdict.ServiceOwner{}
	for a, k := range n.Addrs {
		addrs[a] = k
	}

	for k, o := range n.Services {
		owners[k] = o
	}

	var protos []verdict.NSKey
	for k := range n.HostProtos {
		protos = append(protos, verdict.NSKey{Remote: k.Remote, Proto: k.Proto})
	}

	var gates []bpf.SocketKey
	for _, s := range n.Sockets {
		gates = append(gates, bpf.SocketKey{Proto: s.Proto, Port: s.Local.Port()})
	}

	for _, s := range n.Gates {
		gates = append(gates, bpf.SocketKey(s))
	}

	var flows []verdict.FlowKey
	for k := range n.Flows {
		flows = append(flows, k)
	}

	err := errors.Join(r.gateway.SetConfig(r.config(&n.Config)), r.gateway.SyncAddrs(addrs), r.gateway.SyncServices(owners),
		r.gateway.SyncHostProtos(func() ([]verdict.NSKey, error) { return protos, nil }), r.gateway.SyncHostSockets(gates), r.gateway.SeedFlows(flows))
	if err != nil {
		t.Fatal(err)
	}
}

// sends reports whether the test can send the case: a tag must be inside the frame, unlike tags of
// OVS or a driver.
func (r *rig) sends(c corpus.Case) bool {
	tagged := len(c.Frame) >= 14 && (binary.BigEndian.Uint16(c.Frame[12:]) == corpus.EtherVLAN || binary.BigEndian.Uint16(c.Frame[12:]) == corpus.EtherQinQ)
	return !tagged || c.Dir == verdict.FromWire && len(c.Frame) >= 18
}

func (r *rig) send(t *testing.T, c corpus.Case) {
	t.Helper()

	err := unix.Sendto(r.socket, c.Frame, 0, &unix.SockaddrLinklayer{Ifindex: r.device[c.Dir]})
	if err != nil && !errors.Is(err, unix.ENOBUFS) { // the error for a packet dropped at egress
		t.Fatalf("%s: %v", c.Name, err)
	}
}

func total(of map[string]uint64) (n uint64) {
	for _, v := range of {
		n += v
	}

	return n
}
