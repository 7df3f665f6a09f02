package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// lookupNode is a host with an uplink, a device with its addresses, and a client behind the uplink.
type lookupNode struct {
	*namespace
	client *namespace
	pinDir string
}

func newLookupNode(t *testing.T, addressed string) *lookupNode {
	t.Helper()
	n := &lookupNode{namespace: newNamespace(t), client: newNamespace(t), pinDir: newPinDir(t)}
	n.veth(t, "eth0", nodeMAC, n.client, "wire0")
	n.veth(t, "breth0", nodeMAC, newNamespace(t), "ovn0")

	for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		n.addr(t, addressed, a)
	}

	for _, a := range []string{"192.0.2.9/24", "2001:db8::9/64"} {
		n.client.addr(t, "wire0", a)
	}

	return n
}

// attach loads the program on the uplink, with targets.
func (n *lookupNode) attach(t *testing.T, redirect string, targets map[verdict.ServiceKey]netip.AddrPort) *Lookup {
	t.Helper()

	l, err := OpenLookup(LookupOptions{PinDir: n.pinDir})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })

	if _, err := l.Sync(targets); err != nil {
		t.Fatal(err)
	}

	spec, err := loadLookup()
	if err != nil {
		t.Fatal(err)
	}

	if redirect != "" {
		if err := spec.Variables[lookupVarHostDevice].Set(uint32(n.up(t, redirect))); err != nil {
			t.Fatal(err)
		}
	}

	var objs lookupObjects

	err = spec.LoadAndAssign(&objs, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: n.pinDir}})

	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		t.Fatalf("%+v", verifier)
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { objs.Close() })
	// All tested kernels have clsact, but not all have tcx.
	uplink := n.up(t, "eth0")

	err = errors.Join(
		n.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: uplink, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}),
		n.FilterReplace(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: uplink, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL,
			},
			Fd: objs.LookupIngress.FD(), Name: "lookup", DirectAction: true,
		}),
	)
	if err != nil {
		t.Fatalf("attach to uplink: %v", err)
	}

	return l
}

// serveClient sends every client the address that the server sees.
func (n *lookupNode) serveClient(t *testing.T, network, at string) {
	t.Helper()

	var l net.Listener

	n.must(t, func() (err error) {
		l, err = net.Listen(network, at)
		return err
	})
	t.Cleanup(func() { l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
			_, _ = fmt.Fprint(c, from.Addr().Unmap(), " at ", c.LocalAddr().(*net.TCPAddr).Port)
			c.Close()
		}
	}()
}

// ask connects from the client's namespace and returns the reply.
func (n *lookupNode) ask(t *testing.T, to string) (string, error) {
	t.Helper()

	at := netip.MustParseAddrPort(to)

	c := n.client.client(t, unix.SOCK_STREAM, at.Addr(), false)
	defer c.close()

	if err := c.connect(at); err != nil {
		return "", err
	}

	return c.read(t), nil
}

func lookupKey(at string) verdict.ServiceKey {
	a := netip.MustParseAddrPort(at)
	return verdict.ServiceKey{Addr: a.Addr(), Proto: protoTCP, Port: a.Port()}
}

func TestLookup(t *testing.T) {
	for _, way := range []struct{ name, addressed, redirect string }{
		{"passed", "eth0", ""},
		{"redirected to another device's ingress", "breth0", "breth0"},
	} {
		t.Run(way.name, func(t *testing.T) { testLookup(t, newLookupNode(t, way.addressed), way.redirect) })
	}
}

func testLookup(t *testing.T, n *lookupNode, redirect string) {
	if redirect != "" {
		staticNeighbours(t, n)
	}

	n.serveClient(t, "tcp4", "192.0.2.1:8443")
	n.serveClient(t, "tcp", ":8080") // IPv6, and IPv4 by it
	n.serveClient(t, "tcp4", "127.0.0.1:8444")

	targets := map[verdict.ServiceKey]netip.AddrPort{
		lookupKey("192.0.2.1:30443"):        netip.MustParseAddrPort("192.0.2.1:8443"),
		lookupKey("192.0.2.1:30080"):        netip.MustParseAddrPort("192.0.2.1:8080"),
		lookupKey("[2001:db8::1]:30080"):    netip.MustParseAddrPort("[2001:db8::1]:8080"),
		lookupKey("192.0.2.1:30444"):        netip.MustParseAddrPort("192.0.2.1:8444"), // no listener
		lookupKey("192.0.2.1:8443"):         netip.MustParseAddrPort("192.0.2.1:8443"),
		lookupKey("[2001:db8::1]:30443"):    netip.MustParseAddrPort("[2001:db8::1]:8443"), // only IPv4 is
		lookupKey("198.51.100.1:443"):       netip.MustParseAddrPort("192.0.2.1:8443"),     // a VIP of the host's
		lookupKey("[2001:db8:ffff::1]:443"): netip.MustParseAddrPort("[2001:db8::1]:8080"),
	}

	n.addr(t, "lo", "198.51.100.1/32")
	n.addr(t, "lo", "2001:db8:ffff::1/128")

	for _, vip := range []string{"198.51.100.0/24 via 192.0.2.1", "2001:db8:ffff::/64 via 2001:db8::1"} {
		route(t, n.client, vip)
	}

	l := n.attach(t, redirect, targets)

	for range 3 { // TIME_WAIT of before must not be in the way
		for _, tt := range []struct{ to, want string }{
			{"192.0.2.1:30443", "192.0.2.9 at 30443"},
			{"192.0.2.1:30080", "192.0.2.9 at 30080"},
			{"[2001:db8::1]:30080", "2001:db8::9 at 30080"},
			{"192.0.2.1:8443", "192.0.2.9 at 8443"},
			{"192.0.2.1:8080", "192.0.2.9 at 8080"},
			{"198.51.100.1:443", "192.0.2.9 at 443"},
			{"[2001:db8:ffff::1]:443", "2001:db8::9 at 443"},
		} {
			if got, err := n.ask(t, tt.to); err != nil || got != tt.want {
				t.Errorf("%s: %q, %v; want %q", tt.to, got, err, tt.want)
			}
		}
	}

	for _, to := range []string{"192.0.2.1:30444", "[2001:db8::1]:30443", "192.0.2.1:30000"} {
		if got, err := n.ask(t, to); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %q, %v; want ECONNREFUSED", to, got, err)
		}
	}

	t.Log("SYN cookies: no request socket finds the ACK")
	n.must(t, func() error { return writeSysctl("net/ipv4/tcp_syncookies", "2") })

	if got, err := n.ask(t, "192.0.2.1:30443"); err != nil || got != "192.0.2.9 at 30443" {
		t.Errorf("with SYN cookies: %q, %v", got, err)
	}

	if writes, err := l.Sync(targets); err != nil || writes != 0 {
		t.Errorf("sync of what is there: %d writes, %v", writes, err)
	}

	if writes, err := l.Sync(nil); err != nil || writes != len(targets) {
		t.Errorf("sync of nothing: %d writes, %v", writes, err)
	}

	if got, err := n.ask(t, "192.0.2.1:30443"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after all went: %q, %v; want ECONNREFUSED", got, err)
	}
}

func TestLookup_invalid(t *testing.T) {
	l, err := OpenLookup(LookupOptions{PinDir: newPinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	target := netip.MustParseAddrPort("192.0.2.1:53")
	for _, k := range []verdict.ServiceKey{
		{Addr: target.Addr(), Proto: protoUDP, Port: 53},
		{Addr: netip.MustParseAddr("2001:db8::1"), Proto: protoTCP, Port: 53},
	} {
		if _, err := l.Sync(map[verdict.ServiceKey]netip.AddrPort{k: target}); err == nil {
			t.Errorf("%v is taken", k)
		}
	}

	if err := l.Remove(); err != nil {
		t.Error(err)
	}
}

func writeSysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
}

// route adds "PREFIX via ADDRESS".
func route(t *testing.T, n *namespace, s string) {
	t.Helper()

	prefix, via, _ := strings.Cut(s, " via ")

	_, dst, err := net.ParseCIDR(prefix)
	if err == nil {
		err = n.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)})
	}

	if err != nil {
		t.Fatalf("add route %s: %v", s, err)
	}
}

// staticNeighbours adds the neighbours: with the addresses on breth0, ARP on the uplink gets no
// answer, but replies leave through it.
func staticNeighbours(t *testing.T, n *lookupNode) {
	t.Helper()

	neighbour := func(ns *namespace, device, addr string, mac net.HardwareAddr) {
		l, err := ns.LinkByName(device)
		if err == nil {
			err = ns.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(addr), HardwareAddr: mac})
		}

		if err != nil {
			t.Fatalf("add neighbour %s: %v", addr, err)
		}
	}

	uplink, err := n.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}

	for _, a := range []struct{ node, client string }{{"192.0.2.1", "192.0.2.9"}, {"2001:db8::1", "2001:db8::9"}} {
		neighbour(n.client, "wire0", a.node, nodeMAC)
		neighbour(n.namespace, "eth0", a.client, peerMAC)

		ip := net.ParseIP(a.client)
		if err := n.RouteAdd(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: netlink.NewIPNet(ip), Scope: netlink.SCOPE_LINK}); err != nil {
			t.Fatalf("add route to %s: %v", a.client, err)
		}
	}
}

// The gateway's program assigns only packets with the reason service_host.
func TestLookup_byGateway(t *testing.T) {
	n := newLiveNode(t)
	near := netip.MustParsePrefix(v4.node.String() + "/24").Addr().As4()
	near[3] ^= 0x40
	n.peer.addr(t, "wire0", netip.AddrFrom4(near).String()+"/24")
	g := n.open(t)

	front := func(port uint16) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: v4.node, Proto: protoTCP, Port: port}
	}
	if err := g.SyncServices(map[verdict.ServiceKey]verdict.ServiceOwner{front(30090): verdict.ServiceHost}); err != nil {
		t.Fatal(err)
	}

	attach(t, n, g)

	l, err := OpenLookup(LookupOptions{PinDir: n.pinDir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	target := netip.AddrPortFrom(v4.node, 8080)
	if _, err := l.Sync(map[verdict.ServiceKey]netip.AddrPort{front(30090): target, front(30091): target}); err != nil {
		t.Fatal(err)
	}

	host := &lookupNode{namespace: n.namespace, client: n.peer}
	host.serveClient(t, "tcp4", target.String())
	before := counts(t, n.pinDir)

	want := fmt.Sprint(netip.AddrFrom4(near), " at 30090")
	if got, err := host.ask(t, netip.AddrPortFrom(v4.node, 30090).String()); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}

	if got := deltas(before, counts(t, n.pinDir))["service_host"]; got < 3 {
		t.Errorf("service_host counted %d packets of a connection", got)
	}

	if got, err := host.ask(t, netip.AddrPortFrom(v4.node, 30091).String()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("no service: %q, %v; want ECONNREFUSED", got, err)
	}
}
