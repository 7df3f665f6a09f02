package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// advertise sends a router advertisement (RFC 4861, 4.2) on eth0: a prefix for address
// configuration (4.6.2), valid for ten minutes, and no default route.
func advertise(_ context.Context, o options) (string, error) {
	prefix, err := netip.ParsePrefix(o.addr)
	if err != nil || !prefix.Addr().Is6() {
		return "", fmt.Errorf("%w: %q is no IPv6 prefix", errUsage, o.addr)
	}

	c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return "", err
	}
	defer c.Close()

	raw, err := c.(*net.IPConn).SyscallConn()
	if err != nil {
		return "", err
	}

	const hops = 255 // receivers ignore lower values, as from beyond a router

	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hops)
	}); cerr != nil || err != nil {
		return "", errors.Join(err, cerr)
	}

	const routerAdvert, hopLimit, prefixOption, onLinkAutonomous, seconds = 134, 64, 3, 0xc0, 600

	m := []byte{routerAdvert, 0, 0, 0, hopLimit, 0, 0, 0}                                 // the kernel fills the checksum in
	m = append(m, make([]byte, 8)...)                                                     // reachable and retransmission time: not said
	m = append(m, prefixOption, 4, byte(prefix.Bits()), onLinkAutonomous)                 // 4: of eight bytes each
	m = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(m, seconds), seconds) // valid, preferred

	m = append(append(m, 0, 0, 0, 0), prefix.Masked().Addr().AsSlice()...)
	if _, err := c.WriteTo(m, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: "eth0"}); err != nil {
		return "", err
	}

	return "advertised " + prefix.String(), nil
}
