package masquerade

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

func TestMain(m *testing.M) { os.Exit(testnode.Main(m)) }

func prefixes(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}

	return out
}

var config = Config{
	Port: "mp0", Uplinks: []string{"up0"},
	Pods:     prefixes("10.244.1.0/24", "fd00:10:244:1::/64"),
	Cluster:  prefixes("10.244.0.0/16", "10.96.0.0/16", "fd00:10:244::/48"),
	Routable: prefixes("10.244.1.128/25"),
	Ports:    cluster.PortRange{First: 49152, Last: 65535},
	Tunnels:  prefixes("10.244.0.0/16", "fd00:10:244::/48", "192.0.2.0/28", "2001:db8::/124"),
	Hosts:    []netip.Addr{netip.MustParseAddr("192.0.2.3"), netip.MustParseAddr("2001:db8::3")},
}

func TestScript(t *testing.T) {
	want := `table inet ovn_ebpf
delete table inet ovn_ebpf
table inet ovn_ebpf {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname { "lo", "mp0" } return
		ip saddr { 10.244.1.128/25 } return
		ip saddr { 10.244.1.0/24 } ip daddr { 10.96.0.0/16, 10.244.0.0/16 } return
		ip saddr { 10.244.1.0/24 } meta l4proto { tcp, udp, sctp } masquerade to :49152-65535
		ip saddr { 10.244.1.0/24 } masquerade
		ip6 saddr { fd00:10:244:1::/64 } ip6 daddr { fd00:10:244::/48 } return
		ip6 saddr { fd00:10:244:1::/64 } meta l4proto { tcp, udp, sctp } masquerade to :49152-65535
		ip6 saddr { fd00:10:244:1::/64 } masquerade
	}
	chain input {
		type filter hook input priority filter; policy accept;
		iifname "mp0" udp dport 6081 drop
	}
	chain tunnels {
		ip daddr { 192.0.2.3/32 } drop
		ip daddr { 10.244.0.0/16, 192.0.2.0/28 } return
		ip6 daddr { 2001:db8::3/128 } drop
		ip6 daddr { 2001:db8::/124, fd00:10:244::/48 } return
		drop
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		iifname "mp0" udp dport 6081 goto tunnels
	}
	counter probes_enter_ip {
	}
	counter probes_leave_ip {
	}
	counter new_leave_ip {
	}
	counter replies_enter_ip {
	}
	counter replies_leave_ip {
	}
	counter probes_enter_ip6 {
	}
	counter probes_leave_ip6 {
	}
	counter new_leave_ip6 {
	}
	counter replies_enter_ip6 {
	}
	counter replies_leave_ip6 {
	}
	chain enter {
		type filter hook forward priority -2147483648; policy accept;
		iifname "mp0" ip saddr { 10.244.1.1/32 } meta l4proto { tcp, udp } th sport { 1, 2 } counter name probes_enter_ip
		iifname "mp0" ip saddr { 10.244.1.1/32 } meta l4proto { tcp, udp } th sport 2 meta nftrace set 1
		oifname "mp0" meta nfproto ipv4 ct direction reply counter name replies_enter_ip
		iifname "mp0" ip6 saddr { fd00:10:244:1::1/128 } meta l4proto { tcp, udp } th sport { 1, 2 } counter name probes_enter_ip6
		iifname "mp0" ip6 saddr { fd00:10:244:1::1/128 } meta l4proto { tcp, udp } th sport 2 meta nftrace set 1
		oifname "mp0" meta nfproto ipv6 ct direction reply counter name replies_enter_ip6
	}
	chain leave {
		type filter hook forward priority 2147483647; policy accept;
		iifname "mp0" ip saddr { 10.244.1.1/32 } meta l4proto { tcp, udp } th sport { 1, 2 } counter name probes_leave_ip drop
		iifname "mp0" meta nfproto ipv4 ct state new counter name new_leave_ip
		oifname "mp0" meta nfproto ipv4 ct direction reply counter name replies_leave_ip
		iifname "mp0" ip6 saddr { fd00:10:244:1::1/128 } meta l4proto { tcp, udp } th sport { 1, 2 } counter name probes_leave_ip6 drop
		iifname "mp0" meta nfproto ipv6 ct state new counter name new_leave_ip6
		oifname "mp0" meta nfproto ipv6 ct direction reply counter name replies_leave_ip6
	}
}
`
	if diff := cmp.Diff(want, Script(config)); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no port":     func(c *Config) { c.Port = "" },
		"quote":       func(c *Config) { c.Port = `a"b` },
		"no pods":     func(c *Config) { c.Pods = nil },
		"no ports":    func(c *Config) { c.Ports = cluster.PortRange{} },
		"zero prefix": func(c *Config) { c.Cluster = []netip.Prefix{{}} },
		"zero tunnel": func(c *Config) { c.Tunnels = []netip.Prefix{{}} },
		"zero host":   func(c *Config) { c.Hosts = []netip.Addr{{}} },
	} {
		c := config
		change(&c)

		if err := Sync(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestPodsLeaveByHostAddress has a node between pods and a peer without a route to them.
func TestPodsLeaveByHostAddress(t *testing.T) {
	if err := link.WriteSysctl("net/ipv6/conf/all/forwarding", "0"); err != nil { // left enabled by an earlier test
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = link.Delete("other0") })
	n := newNode(t, remotePods+`
ip link add other0 type veth peer name o0
ip link set other0 up
pod:addr add 10.244.1.130/24 dev p0
`)
	testnode.Run(t, "nft", "add table inet others; add chain inet others c")
	t.Cleanup(func() { testnode.Run(t, "nft", "delete table inet others") })
	server := serve(t, n.world)

	seen := func(from, to, want string) {
		t.Helper()

		const ssh = 22 // used by the host, but a pod may bind it

		client := dial(t, n.pods, netip.AddrPortFrom(netip.MustParseAddr(from), ssh), net.JoinHostPort(to, server))

		got, err := netip.ParseAddrPort(client)
		if err != nil || got.Addr().Unmap().String() != want {
			t.Errorf("%s to %s: seen as %s, want %s", from, to, client, want)
		}

		if masqueraded := want != from; masqueraded != (got.Port() >= config.Ports.First) {
			t.Errorf("%s to %s: seen from port %d", from, to, got.Port())
		}
	}

	for range 2 {
		if err := Sync(t.Context(), config); err != nil {
			t.Fatal(err)
		}

		seen("10.244.1.5", "192.0.2.1", "192.0.2.2")
		seen("10.244.1.130", "192.0.2.1", "10.244.1.130")
		seen("10.244.1.5", "10.244.2.5", "10.244.1.5")
		seen("fd00:10:244:1::5", "2001:db8::1", "2001:db8::2")
		seen("fd00:10:244:1::5", "fd00:10:244:2::5", "fd00:10:244:1::5")
	}

	for _, d := range []string{"up0", "other0"} {
		if v, err := link.ReadSysctl("net/ipv6/conf/" + d + "/accept_ra"); err != nil || v != "2" {
			t.Errorf("accept_ra of %s %s, error %v: it forwards and would lose its default route", d, v, err)
		}
	}

	for range 2 {
		if err := Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	seen("10.244.1.5", "192.0.2.1", "10.244.1.5")

	if got := strings.TrimSpace(testnode.Run(t, "nft", "list", "tables")); got != "table inet others" {
		t.Errorf("tables left: %q", got)
	}
}

// serve starts a server that returns the address and port of its clients.
func serve(t *testing.T, pid string) (port string) {
	t.Helper()

	var l net.Listener

	err := link.InNetns("/proc/"+pid+"/ns/net", func() (err error) {
		l, err = net.Listen("tcp", ":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			fmt.Fprint(c, c.RemoteAddr())
			c.Close()
		}
	}()

	_, port, _ = net.SplitHostPort(l.Addr().String())

	return port
}

func dial(t *testing.T, pid string, from netip.AddrPort, to string) string {
	t.Helper()

	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: 20 * time.Second, Control: reuse}

	var c net.Conn

	err := link.InNetns("/proc/"+pid+"/ns/net", func() (err error) {
		c, err = d.Dial("tcp", to)
		return err
	})
	if err != nil {
		t.Fatalf("%s to %s: %v", from, to, err)
	}
	defer c.Close()

	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// reuse allows binding a source port while an earlier connection from it lingers.
func reuse(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})

	return errors.Join(failed, err)
}
