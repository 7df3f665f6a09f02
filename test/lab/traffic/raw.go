package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// extensions adds IPv6 destination options to every datagram of c: eight bytes of padding, which
// every receiver skips (RFC 8200, 4.6).
func extensions(c net.Conn) error {
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}

	const padN = 1

	options := []byte{0, 0, padN, 4, 0, 0, 0, 0}

	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, string(options))
	}); cerr != nil {
		return cerr
	}

	return err
}

// The request's length and the position of the cut, a multiple of eight. OVS's own connection
// tracker rejects first fragments below 1200 bytes, or 1280 for IPv6.
const fragmented, cut = 1600, 1304

// askFragments sends a UDP request in two fragments, the later one first, and repeats it every
// second until it gets a reply.
func askFragments(ctx context.Context, o options) (string, error) {
	c, err := dial(ctx, "udp", o)
	if err != nil {
		return "", err
	}
	defer c.Close()

	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	remote := c.RemoteAddr().(*net.UDPAddr).AddrPort()

	send, err := rawSender(local.Addr(), remote.Addr())
	if err != nil {
		return "", err
	}
	defer send.close()

	buf := make([]byte, 2000)

	for id, end := uint16(time.Now().UnixNano()), time.Now().Add(o.timeout); ; id++ {
		datagram := udpDatagram(local, remote, fmt.Appendf(nil, "%-*s", fragmented, "who"))
		if err := errors.Join(send.fragment(id, cut, false, datagram[cut:]), send.fragment(id, 0, true, datagram[:cut])); err != nil {
			return "", err
		}

		try := time.Now().Add(time.Second)
		if try.After(end) {
			try = end
		}

		if err := c.SetReadDeadline(try); err != nil {
			return "", err
		}

		n, err := c.Read(buf)
		if err == nil {
			return string(buf[:n]), nil
		}

		if time.Now().After(end) || ctx.Err() != nil || errors.Is(err, unix.ECONNREFUSED) {
			return "", err
		}
	}
}

// sender sends IP packets that it builds itself.
type sender struct {
	fd       int
	src, dst netip.Addr
}

func rawSender(src, dst netip.Addr) (*sender, error) {
	s := &sender{src: src, dst: dst}

	family, proto := unix.AF_INET, unix.IPPROTO_RAW // with an own IPv4 header
	if dst.Is6() {
		family, proto = unix.AF_INET6, unix.IPPROTO_FRAGMENT // with the kernel's IPv6 header
	}

	var err error

	s.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}

	if dst.Is6() {
		if err := unix.Bind(s.fd, &unix.SockaddrInet6{Addr: src.As16()}); err != nil {
			s.close()
			return nil, fmt.Errorf("bind raw socket to %s: %w", src, err)
		}
	}

	return s, nil
}

func (s *sender) close() { _ = unix.Close(s.fd) }

// fragment sends the part of a UDP datagram at this offset.
func (s *sender) fragment(id uint16, offset int, more bool, payload []byte) error {
	if s.dst.Is6() {
		h := binary.BigEndian.AppendUint16([]byte{unix.IPPROTO_UDP, 0}, uint16(offset)|bit(more))
		h = binary.BigEndian.AppendUint32(h, uint32(id))

		return unix.Sendto(s.fd, append(h, payload...), 0, &unix.SockaddrInet6{Addr: s.dst.As16()})
	}
	// The kernel fills in length and checksum.
	h := make([]byte, 20, 20+len(payload))
	h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(h[4:], id)
	binary.BigEndian.PutUint16(h[6:], uint16(offset/8)|bit(more)<<13)
	copy(h[12:], s.src.AsSlice())
	copy(h[16:], s.dst.AsSlice())

	return unix.Sendto(s.fd, append(h, payload...), 0, &unix.SockaddrInet4{Addr: s.dst.As4()})
}

func bit(b bool) uint16 {
	if b {
		return 1
	}

	return 0
}

// udpDatagram returns a UDP header, with checksum, and the payload.
func udpDatagram(src, dst netip.AddrPort, payload []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = binary.BigEndian.AppendUint16(d, uint16(8+len(payload)))
	d = append(append(d, 0, 0), payload...)
	pseudo := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
	pseudo = binary.BigEndian.AppendUint16(append(pseudo, 0, unix.IPPROTO_UDP), uint16(len(d)))
	binary.BigEndian.PutUint16(d[6:], Checksum(append(pseudo, d...)))

	return d
}

// Checksum returns the Internet checksum (RFC 1071). It is 0 for data that contains its checksum.
func Checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}

	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}

	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	return ^uint16(sum)
}

// plainGRE is a GRE header without key (RFC 2784), which NAT implementations for protocol 47 parse;
// the kernel needs four more bytes. Other protocols ignore it.
const plainGRE = "\x00\x00\x88\xb5"

// askProto sends requests in packets of the IP protocol o.proto, which has no ports.
func askProto(ctx context.Context, o options) (string, error) {
	var d net.Dialer
	if o.src != "" {
		d.LocalAddr = &net.IPAddr{IP: net.ParseIP(o.src)}
	}

	c, err := d.DialContext(ctx, "ip:"+strconv.Itoa(o.proto), o.addr)
	if err != nil {
		return "", err
	}
	defer c.Close()

	buf := make([]byte, 2000)

	for end := time.Now().Add(o.timeout); ; {
		if _, err := c.Write([]byte(plainGRE + "who asks")); err != nil {
			return "", err
		}

		if err := c.SetReadDeadline(time.Now().Add(min(time.Second, o.timeout))); err != nil {
			return "", err
		}

		n, err := c.Read(buf)
		if err == nil {
			return strings.TrimPrefix(string(buf[:n]), plainGRE), nil
		}

		if time.Now().After(end) || ctx.Err() != nil {
			return "", err
		}
	}
}

// isRequest reports whether a packet without ports is a request: a raw socket also receives replies
// to others' requests, and two servers would answer each other forever.
func isRequest(b []byte) bool {
	return bytes.HasPrefix(b, []byte("seq ")) || bytes.HasPrefix(b, []byte(plainGRE+"who"))
}

// serveProto answers requests in packets of an IP protocol, of both families.
func serveProto(ctx context.Context, group *errgroup.Group, proto int, name string) error {
	for _, family := range []string{"ip4", "ip6"} {
		c, err := net.ListenPacket(family+":"+strconv.Itoa(proto), "")
		if err != nil {
			return err
		}

		context.AfterFunc(ctx, func() { c.Close() })
		group.Go(func() error {
			return datagrams(ctx, name, func(b []byte) (int, net.Addr, func([]byte) error, error) {
				n, from, err := c.ReadFrom(b)
				for err == nil && !isRequest(b[:n]) {
					n, from, err = c.ReadFrom(b)
				}

				return n, from, func(b []byte) error {
					_, err := c.WriteTo(append([]byte(plainGRE), b...), from)
					return err
				}, err
			})
		})
	}

	return nil
}
