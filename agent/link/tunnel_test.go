package link

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestTunnelProtos(t *testing.T) {
	v4, v6, any4 := net.IPv4(192, 0, 2, 1).To4(), net.ParseIP("2001:db8::1"), net.IPv4zero.To4()

	to := func(s string, p uint8) HostProto { return HostProto{netip.MustParseAddr(s), p} }
	for _, c := range []struct {
		name string
		link netlink.Link
		want []HostProto
	}{
		{"gre", &netlink.Gretun{Remote: v4}, []HostProto{to("192.0.2.1", 47)}},
		{"gretap without remote", &netlink.Gretap{Remote: any4}, []HostProto{to("0.0.0.0", 47)}},
		{"ip6gre without remote", &netlink.Gretun{Local: v6}, []HostProto{to("::", 47)}},
		{"gre in UDP", &netlink.Gretun{Remote: v4, EncapType: 1}, nil},
		{"ipip", &netlink.Iptun{Remote: v4, Proto: 4}, []HostProto{to("192.0.2.1", 4)}},
		{"sit of any", &netlink.Sittun{Remote: v4}, []HostProto{to("192.0.2.1", 41), to("192.0.2.1", 4)}},
		{"ip6tnl", &netlink.Ip6tnl{Remote: v6, Proto: 41}, []HostProto{to("2001:db8::1", 41)}},
		{"veth", &netlink.Veth{}, nil},
	} {
		if got := tunnelProtos(c.link); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}

	own := []Address{{Prefix: netip.MustParsePrefix("198.51.100.1/24")}}

	states := []netlink.XfrmState{
		{Src: net.IPv4(198, 51, 100, 1), Dst: v4, Proto: netlink.XFRM_PROTO_ESP},
		{Src: v4, Dst: net.IPv4(198, 51, 100, 1), Proto: netlink.XFRM_PROTO_AH},
		{Src: v6, Dst: net.IPv4(198, 51, 100, 1), Proto: netlink.XFRM_PROTO_ESP, Encap: &netlink.XfrmStateEncap{}},
	}
	if got, want := stateProtos(states, own), []HostProto{to("192.0.2.1", 50), to("192.0.2.1", 51)}; !slices.Equal(got, want) {
		t.Errorf("states: %v, want %v", got, want)
	}
}

func TestHostProtos(t *testing.T) {
	if got, err := HostProtos(); err != nil || len(got) != 0 {
		t.Errorf("without tunnels: %v, error %v", got, err)
	}

	out, err := exec.Command("ip", "link", "add", "tun9", "type", "gre", "local", "198.51.100.1", "remote", "192.0.2.9").CombinedOutput()
	if err != nil && strings.Contains(string(out), "Unknown device type") {
		t.Skip("kernel has no GRE")
	}

	if err != nil {
		t.Fatalf("add tunnel: %v: %s", err, out)
	}

	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "tun9") })
	testnode.Run(t, "ip", "link", "set", "tun9", "up")

	got, err := HostProtos()
	if want := (HostProto{netip.MustParseAddr("192.0.2.9"), 47}); err != nil || !slices.Equal(got, []HostProto{want}) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
}
