package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestMain(m *testing.M) {
	if err := Supported(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests of bpf use the kernel, run them as root:", err)
		os.Exit(1)
	}

	os.Exit(tether.Main(m))
}

// namespace is a network namespace of the test, with a thread in it.
type namespace struct {
	*netlink.Handle
	handle netns.NsHandle
	work   chan func()
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()

	n := &namespace{work: make(chan func())}
	ready := make(chan error)

	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace

		h, err := netns.New()
		n.handle = h

		ready <- err

		for f := range n.work {
			f()
		}
	}()

	if err := <-ready; err != nil {
		t.Fatalf("make netns: %v", err)
	}

	h, err := netlink.NewHandleAt(n.handle)
	if err != nil {
		t.Fatalf("open netlink in netns: %v", err)
	}

	n.Handle = h

	t.Cleanup(func() {
		h.Close()
		close(n.work)
		n.handle.Close()
	})
	n.up(t, "lo")

	return n
}

// do runs f on the namespace's thread. f must not end the test.
func (n *namespace) do(f func() error) error {
	done := make(chan error)
	n.work <- func() { done <- f() }

	return <-done
}

func (n *namespace) must(t testing.TB, f func() error) {
	t.Helper()

	if err := n.do(f); err != nil {
		t.Fatal(err)
	}
}

func (n *namespace) up(t testing.TB, name string) int {
	t.Helper()

	l, err := n.LinkByName(name)
	if err == nil {
		err = n.LinkSetUp(l)
	}

	if err != nil {
		t.Fatalf("set up %s: %v", name, err)
	}

	return l.Attrs().Index
}

func (n *namespace) addr(t testing.TB, name, prefix string) {
	t.Helper()

	l, err := n.LinkByName(name)
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}

	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		t.Fatal(err)
	}

	a.Flags = unix.IFA_F_NODAD
	if err := n.AddrAdd(l, a); err != nil {
		t.Fatalf("add %s to %s: %v", prefix, name, err)
	}
	// The kernel adds the local route of an IPv6 address asynchronously.
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: netlink.NewIPNet(a.IP)}

	eventually(t, "the local route of "+prefix, func() bool {
		routes, err := n.RouteListFiltered(netlink.FAMILY_ALL, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		return err == nil && len(routes) > 0
	})
}

// veth creates a pair with one end in n and the other in peer, both up.
func (n *namespace) veth(t testing.TB, name string, mac net.HardwareAddr, peer *namespace, peerName string) int {
	t.Helper()

	l := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, HardwareAddr: mac},
		PeerName:         peerName,
		PeerNamespace:    netlink.NsFd(peer.handle),
		PeerHardwareAddr: peerMAC,
	}
	if err := n.LinkAdd(l); err != nil {
		t.Fatalf("add veth %s: %v", name, err)
	}

	peer.up(t, peerName)

	return n.up(t, name)
}

func (n *namespace) remove(t testing.TB, name string) {
	t.Helper()

	l, err := n.LinkByName(name)
	if err == nil {
		err = n.LinkDel(l)
	}

	if err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// newPinDir returns a directory on a bpffs of the test.
func newPinDir(t testing.TB) string {
	t.Helper()

	mount := t.TempDir()
	if err := unix.Mount("bpf", mount, "bpf", 0, ""); err != nil {
		t.Fatalf("mount bpffs: %v", err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount bpffs: %v", err)
		}
	})

	return filepath.Join(mount, "gateway")
}

// node is a gateway node with an uplink and a bridge. Their other ends are in peer.
type node struct {
	*namespace
	peer           *namespace
	uplink, bridge int
	pinDir         string
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{namespace: newNamespace(t), peer: newNamespace(t), pinDir: newPinDir(t)}
	n.uplink = n.veth(t, "eth0", nodeMAC, n.peer, "wire0")
	n.bridge = n.veth(t, "breth0", nodeMAC, n.peer, "ovn0")

	return n
}

func (n *node) config() Config {
	return Config{Uplink: n.uplink, Bridge: n.bridge, Config: verdict.Config{
		NodeMAC: verdict.MAC(nodeMAC),
		Node4:   v4.node, Node6: v6.node,
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535},
		GenevePort:   6081,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
	}}
}

// open loads a gateway with the initial tables of every test.
func (n *node) open(t testing.TB, change ...func(*Options)) *Gateway {
	t.Helper()

	opts := Options{PinDir: n.pinDir, Config: n.config(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clsact: n.clsact()}
	for _, f := range change {
		f(&opts)
	}

	g, err := Open(opts)

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { g.Close() })

	err = errors.Join(
		g.SyncAddrs(hosts(v4.node, v4.second, v6.node, v6.second, encap)),
		g.SyncServices(ovns([]verdict.ServiceKey{
			{Addr: v4.node, Proto: protoTCP, Port: 30080},
			{Addr: v4.node, Proto: protoUDP, Port: 30053},
			{Addr: v4.vip, Proto: protoTCP, Port: 443},
			{Addr: v4.second, Proto: protoTCP, Port: 30081},
			{Addr: v6.node, Proto: protoTCP, Port: 30080},
			{Addr: v6.node, Proto: protoUDP, Port: 30053},
			{Addr: v6.vip, Proto: protoTCP, Port: 443},
			{Addr: v6.second, Proto: protoTCP, Port: 30081},
		})),
	)
	if err != nil {
		t.Fatal(err)
	}

	return g
}

func hosts(addrs ...netip.Addr) map[netip.Addr]verdict.AddrKind {
	m := make(map[netip.Addr]verdict.AddrKind, len(addrs))
	for _, a := range addrs {
		m[a] = verdict.AddrHost
	}

	return m
}

// ovns assigns every frontend to OVN.
func ovns(keys []verdict.ServiceKey) map[verdict.ServiceKey]verdict.ServiceOwner {
	m := make(map[verdict.ServiceKey]verdict.ServiceOwner, len(keys))
	for _, k := range keys {
		m[k] = verdict.ServiceOVN
	}

	return m
}

// counts returns the counters that are not zero.
func counts(t testing.TB, pinDir string) map[string]uint64 {
	t.Helper()

	counters, err := ReadCounters(pinDir)
	if err != nil {
		t.Fatal(err)
	}

	m := make(map[string]uint64)

	for _, c := range counters {
		if c.Packets != 0 {
			m[c.Reason] = c.Packets
		}
	}

	return m
}

// deltas returns the increase from before to after.
func deltas(before, after map[string]uint64) map[string]uint64 {
	m := make(map[string]uint64)

	for k, v := range after {
		if v != before[k] {
			m[k] = v - before[k]
		}
	}

	return m
}

// eventually waits for asynchronous work of other threads and the kernel.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()

	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
