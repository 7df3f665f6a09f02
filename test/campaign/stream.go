package campaign

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// stream sends numbers and receives them.
type stream interface {
	send(seq uint64) error
	// receive returns 0 for other packets.
	receive(buf []byte) (uint64, error)
	Close() error
}

// open creates the socket of a probe: "udp"; "fixed", UDP with one port at both ends, as in
// WireGuard; "held", one TCP connection; "echo", ICMP; or the number of an IP protocol.
func (p *probe) open(ctx context.Context) (stream, error) {
	to := p.path.To(p.v6)

	family := map[bool]string{false: "4", true: "6"}[p.v6]
	switch p.kind {
	case "udp", "fixed":
		var c net.Conn

		err := netns.Do(p.ns, func() (err error) {
			d := net.Dialer{LocalAddr: &net.UDPAddr{Port: p.path.Port}}
			if p.kind == "fixed" {
				d.LocalAddr = &net.UDPAddr{Port: int(to.Port())}
			}

			c, err = d.DialContext(ctx, "udp"+family, to.String())

			return err
		})

		return datagrams{c}, err
	case "held":
		var c net.Conn

		err := netns.Do(p.ns, func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{Port: p.path.Port}, Timeout: lostAfter}
			c, err = d.DialContext(ctx, "tcp"+family, to.String())

			return err
		})
		if err != nil {
			return nil, err
		}

		return connection{c, bufio.NewReader(c)}, nil
	case "echo":
		c, err := p.raw(map[bool]string{false: "icmp", true: "ipv6-icmp"}[p.v6])
		return &echoes{PacketConn: c, to: &net.IPAddr{IP: to.Addr().AsSlice()}, v6: p.v6, id: to.Port()}, err
	default:
		c, err := p.raw(p.kind)
		return &packets{PacketConn: c, to: &net.IPAddr{IP: to.Addr().AsSlice()}}, err
	}
}

func (p *probe) raw(protocol string) (c net.PacketConn, err error) {
	err = netns.Do(p.ns, func() error {
		c, err = net.ListenPacket(map[bool]string{false: "ip4:", true: "ip6:"}[p.v6]+protocol, "")
		return err
	})

	return c, err
}

type datagrams struct{ net.Conn }

func (d datagrams) send(seq uint64) error {
	_, err := fmt.Fprintf(d, "seq %d\n", seq)
	return err
}

func (d datagrams) receive(buf []byte) (uint64, error) {
	n, err := d.Read(buf)
	if err != nil {
		return 0, err
	}

	return number(buf[:n]), nil
}

// connection is a stream over one TCP connection.
type connection struct {
	net.Conn
	lines *bufio.Reader
}

func (c connection) send(seq uint64) error {
	_, err := fmt.Fprintf(c.Conn, "seq %d\n", seq)
	return err
}

func (c connection) receive([]byte) (uint64, error) {
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return 0, errors.Join(net.ErrClosed, err) // a connection has no answers after an error
	}

	return number([]byte(line)), nil
}

// number parses a reply; it returns 0 for other packets.
func number(b []byte) uint64 {
	seq, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}

	return seq
}

// packets is a stream over an IP protocol without ports.
type packets struct {
	net.PacketConn
	to net.Addr
}

func (p *packets) send(seq uint64) error {
	_, err := p.WriteTo(fmt.Appendf(nil, "seq %d\n", seq), p.to)
	return err
}

func (p *packets) receive(buf []byte) (uint64, error) {
	n, _, err := p.ReadFrom(buf)
	if err != nil {
		return 0, err
	}

	return number(buf[:n]), nil
}

// echoes is a stream over ICMP, with a number in the data.
type echoes struct {
	net.PacketConn
	to net.Addr
	v6 bool
	id uint16
}

func (e *echoes) send(seq uint64) error {
	b := []byte{8, 0, 0, 0}
	if e.v6 {
		b[0] = 128 // the kernel adds the checksum
	}

	b = binary.BigEndian.AppendUint16(b, e.id)
	b = binary.BigEndian.AppendUint16(b, uint16(seq))

	b = binary.BigEndian.AppendUint64(b, seq)
	if !e.v6 {
		binary.BigEndian.PutUint16(b[2:], sum(b))
	}

	_, err := e.WriteTo(b, e.to)

	return err
}

func (e *echoes) receive(buf []byte) (uint64, error) {
	n, from, err := e.ReadFrom(buf)
	if err != nil {
		return 0, err
	}

	reply := map[bool]byte{false: 0, true: 129}[e.v6]
	if n != 16 || buf[0] != reply || binary.BigEndian.Uint16(buf[4:]) != e.id || from.String() != e.to.String() {
		return 0, nil
	}

	return binary.BigEndian.Uint64(buf[8:]), nil
}

// sum returns the Internet checksum.
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}

	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}

	for s > 0xffff {
		s = s>>16 + s&0xffff
	}

	return ^uint16(s)
}

// respond sends the numbers of probes back, and answers nothing else: a server that answered an
// attacker's frames would wait for missing neighbours and lose probes itself. network is an
// argument for net.ListenPacket.
func respond(ctx context.Context, ns, network, address string) error {
	var c net.PacketConn

	err := netns.Do(ns, func() (err error) {
		c, err = net.ListenPacket(network, address)
		return err
	})
	if err != nil {
		return err
	}

	if b, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		if err := b.SetReadBuffer(4 << 20); err != nil {
			return err
		}
	}

	context.AfterFunc(ctx, func() { c.Close() })
	go func() {
		for buf := make([]byte, 65536); ctx.Err() == nil; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				continue // closed, or an ICMP error for an earlier reply
			}

			if seq, ok := bytes.CutPrefix(buf[:n], []byte("seq ")); ok {
				_, _ = c.WriteTo(seq, from) // the probe detects a lost reply
			}
		}
	}()

	return nil
}
