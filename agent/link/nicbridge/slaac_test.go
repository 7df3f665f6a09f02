package nicbridge

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// advertise sends a router advertisement five times per second until the test ends.
func (r *rig) advertise(t *testing.T, prefix string) {
	t.Helper()

	msg := []byte{134, 0, 0, 0, 0 /* hop limit: unspecified */, 0, 1800 >> 8, 1800 & 0xff, 0, 0, 0, 0, 0, 0, 0, 0}
	msg = append(msg, 1, 1, 2, 0, 0, 0, 0, 1)                                                         // source link-layer address
	msg = append(msg, 3, 4, 64, 0xc0, 0, 0, 3600>>8, 3600&0xff, 0, 0, 1800>>8, 1800&0xff, 0, 0, 0, 0) // prefix: on link, autonomous
	msg = append(msg, netip.MustParseAddr(prefix).AsSlice()...)

	var conn *ipv6.PacketConn

	err := link.InNetns("/proc/"+r.peer+"/ns/net", func() error {
		c, err := net.ListenPacket("ip6:ipv6-icmp", "fe80::1%wire")
		if err != nil {
			return err
		}

		conn = ipv6.NewPacketConn(c)

		wire, err := net.InterfaceByName("wire")
		if err != nil {
			return err
		}

		if err := conn.SetMulticastInterface(wire); err != nil {
			return err
		}

		return conn.SetMulticastHopLimit(255)
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })

	go func() {
		all := &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: "wire"}
		for {
			if _, err := conn.WriteTo(msg, nil, all); err != nil {
				return
			}

			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// TestAdvertisedAddress moves an address and a default route from router advertisements. The host
// keeps both, and the kernel continues to renew them.
func TestAdvertisedAddress(t *testing.T) {
	r := newRig(t)
	r.opts.Watchdog = nil
	r.advertise(t, "2001:db8:5::")

	const slaac = "2001:db8:5::ff:fe00:2"

	learned := func(device string) func() error {
		return func() error {
			addrs := testnode.Run(t, "ip", "-o", "addr", "show", "dev", device, "-tentative")

			routes := testnode.Run(t, "ip", "-6", "route", "show", "proto", "ra", "dev", device)
			if !strings.Contains(addrs, slaac) || !strings.Contains(addrs, "dynamic") || !strings.Contains(routes, "default via fe80::1 metric 1024") {
				return fmt.Errorf("addresses %s, routes %s", addrs, routes)
			}

			return nil
		}
	}
	testnode.Eventually(t, "learned on the NIC", learned(nicName))

	copied := func(l string) bool { return strings.Contains(l, "proto ra") && strings.Contains(l, "metric 1025") }
	before := r.state(t)

	s := r.stream(t, slaac)
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "learned on the bridge", learned(bridgeName))

	if n := strings.Count(testnode.Run(t, "ip", "-o", "-6", "addr", "show", "dev", bridgeName), "2001:db8:5:"); n != 1 {
		t.Errorf("%d addresses of the prefix on the bridge, want the one that was moved", n)
	}

	if err := Restore(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "learned on the NIC again", learned(nicName))
	testnode.Eventually(t, "restored", func() error { return compare(before, slices.DeleteFunc(r.state(t), copied)) })
	s.alive(t)
}
