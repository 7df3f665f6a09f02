package link

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestConnectedRoutes: a known route is missing while its address is there. A missing route whose source
// is gone gets another one.
func TestConnectedRoutes(t *testing.T) {
	testnode.Run(t, "ip", "link", "add", "con0", "type", "veth", "peer", "name", "con1")
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "con0") })

	for _, argv := range []string{
		"link set con0 up", "link set con1 up", "addr add 10.9.0.1/24 dev con0", "addr add 10.9.0.2/24 dev con0", "addr add fd09::1/64 dev con0 nodad",
		"addr add 10.8.0.1/32 dev con0", "addr add 10.7.0.1 peer 10.7.0.2/32 dev con0",
	} {
		testnode.Run(t, append([]string{"ip"}, strings.Fields(argv)...)...)
	}

	v4, v6 := netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")
	prefixes := func(routes []ConnectedRoute) (out []netip.Prefix) {
		for _, r := range routes {
			if !r.Prefix.Addr().IsLinkLocalUnicast() {
				out = append(out, r.Prefix)
			}
		}

		return out
	}

	known, missing, err := ConnectedRoutes("con0", nil)
	if err != nil || len(missing) != 0 || !slices.Equal(prefixes(known), []netip.Prefix{v4, v6}) {
		t.Fatalf("routes %+v, missing %+v, %v", known, missing, err)
	}

	testnode.Run(t, "sysctl", "-qw", "net.ipv4.conf.con0.promote_secondaries=1")
	testnode.Run(t, "ip", "addr", "del", "10.9.0.1/24", "dev", "con0")
	testnode.Run(t, "ip", "-4", "route", "flush", "dev", "con0")
	testnode.Run(t, "ip", "-6", "route", "flush", "dev", "con0")

	have, missing, err := ConnectedRoutes("con0", known)
	if err != nil || len(have) != 0 || !slices.Equal(prefixes(missing), []netip.Prefix{v4, v6}) {
		t.Fatalf("after the flush: routes %+v, missing %+v, %v", have, missing, err)
	}

	if i := slices.IndexFunc(missing, func(r ConnectedRoute) bool { return r.Prefix == v4 }); missing[i].Source.String() != "10.9.0.2" || missing[i].Protocol != unix.RTPROT_KERNEL {
		t.Errorf("missing %+v, want the remaining address as source", missing[i])
	}

	for range 2 { // it may be there already
		for _, r := range missing {
			if err := AddConnectedRoute(r); err != nil {
				t.Error(err)
			}
		}
	}

	if have, missing, err = ConnectedRoutes("con0", known); err != nil || len(missing) != 0 || !slices.Equal(prefixes(have), []netip.Prefix{v4, v6}) {
		t.Errorf("added again: routes %+v, missing %+v, %v", have, missing, err)
	}

	testnode.Run(t, "ip", "link", "set", "con0", "down")

	if have, missing, err = ConnectedRoutes("con0", known); err != nil || len(have)+len(missing) != 0 {
		t.Errorf("device is down: routes %+v, missing %+v, %v", have, missing, err)
	}

	if _, _, err := ConnectedRoutes("con9", known); err == nil {
		t.Error("no error for a device that does not exist")
	}
}
