package link

import (
	"maps"
	"net"
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestConntrackFailures(t *testing.T) {
	const (
		head = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n"
		row  = "00000012  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0000000a 00000010 00000001 00000000  00000000 00000000 00000000 00000000\n"
	)
	for text, want := range map[string]map[string]uint64{
		head + row + row: {"insert_failed": 20, "drop": 32},
		head:             {"insert_failed": 0, "drop": 0},
		"":               {"insert_failed": 0, "drop": 0},
	} {
		if got, err := parseConntrackStat(text); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v of %q", got, err, want, text)
		}
	}

	for _, bad := range []string{head + "1 2 3\n", head + row[:len(row)-1] + "\nx x x x x x x x x x x\n"} {
		if got, err := parseConntrackStat(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}

	if _, err := ConntrackFailures(); err != nil {
		t.Errorf("this kernel's: %v", err)
	}
}

// A client that keeps its port is freed from an entry with a stale endpoint.
func TestForgetUDP(t *testing.T) {
	testnode.Run(t, "nft", "add table inet tracked; add chain inet tracked c { type filter hook input priority 0; }; add rule inet tracked c ct state new counter")
	t.Cleanup(func() { testnode.Run(t, "nft", "delete table inet tracked") })

	for _, addr := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(addr), 30053).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()

		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}

	at := func(addr string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	}

	v4, v6 := at("127.0.0.1", 30053), at("::1", 30053)
	for _, tt := range []struct {
		name string
		by   map[netip.AddrPort][]netip.AddrPort
		want int
	}{
		{"answered by whom it should", map[netip.AddrPort][]netip.AddrPort{v4: {v4}, v6: {at("::1", 1), v6}}, 0},
		{"of other frontends", map[netip.AddrPort][]netip.AddrPort{at("127.0.0.1", 30054): nil, at("127.0.0.2", 30053): nil}, 0},
		{"by others", map[netip.AddrPort][]netip.AddrPort{v4: {at("10.244.0.3", 53)}, v6: nil}, 2},
		{"again", map[netip.AddrPort][]netip.AddrPort{v4: nil, v6: nil}, 0},
	} {
		if n, err := ForgetUDP(tt.by); err != nil || n != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, n, err, tt.want)
		}
	}
}
