package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// tap sends and receives whole frames on an interface of the peer.
type tap struct{ fd, ifindex int }

func (n *node) tap(t *testing.T, name string) *tap {
	t.Helper()

	var p *tap

	ifindex := n.peer.up(t, name)
	n.peer.must(t, func() (err error) {
		p, err = openTap(ifindex)
		return err
	})
	t.Cleanup(func() { unix.Close(p.fd) })

	return p
}

func openTap(ifindex int) (*tap, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return nil, err
	}

	tv := unix.Timeval{Sec: 10}

	return &tap{fd: fd, ifindex: ifindex}, errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifindex}),
	)
}

func htons(v uint16) uint16 { return bePort(v) }

func (p *tap) send(t *testing.T, frame []byte) {
	t.Helper()

	if err := unix.Sendto(p.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.ifindex}); err != nil {
		t.Fatalf("send frame: %v", err)
	}
}

// expect waits for the frame and skips others, such as those of the kernel.
func (p *tap) expect(t *testing.T, frame []byte) {
	t.Helper()

	buf := make([]byte, 65536)
	for {
		n, from, err := unix.Recvfrom(p.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}

		if err != nil {
			t.Fatalf("receive frame %x: %v", frame, err)
		}

		outgoing := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
		if !outgoing && bytes.Equal(buf[:n], frame) {
			return
		}
	}
}

// packetSocket receives the packets that arrive at a device of n.
func (n *node) packetSocket(t *testing.T, ifindex int) *tap {
	t.Helper()

	var p *tap

	n.must(t, func() (err error) {
		p, err = openTap(ifindex)
		return err
	})
	t.Cleanup(func() { unix.Close(p.fd) })

	return p
}

// expectTagged waits for the frame with that tag, 0 for none.
func (p *tap) expectTagged(t *testing.T, frame []byte, vlan uint16) {
	t.Helper()
	p.await(t, func(got []byte, tag uint16) bool { return bytes.Equal(got, frame) && tag == vlan })
}

// expectPayload waits for an IPv4 packet with this transport header.
func (p *tap) expectPayload(t *testing.T, l4 []byte, vlan uint16) {
	t.Helper()
	p.await(t, func(got []byte, tag uint16) bool {
		return len(got) > 34 && bytes.HasPrefix(got[34:], l4) && tag == vlan
	})
}

// await reads frames until one matches. The kernel delivers a tag separately from the frame.
func (p *tap) await(t *testing.T, right func(frame []byte, vlan uint16) bool) {
	t.Helper()

	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}

	buf, oob := make([]byte, 65536), make([]byte, 256)
	for {
		n, oobn, _, from, err := unix.Recvmsg(p.fd, buf, oob, 0)
		if errors.Is(err, unix.EINTR) { // with a time limit, which this socket has, only this code retries
			continue
		}

		if err != nil {
			t.Fatalf("receive frame: %v", err)
		}

		outgoing := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
		if !outgoing && right(buf[:n], auxVLAN(t, oob[:oobn])) {
			return
		}
	}
}

// auxVLAN reads the tag, with its priority, from struct tpacket_auxdata.
func auxVLAN(t *testing.T, oob []byte) uint16 {
	t.Helper()

	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 {
			return binary.NativeEndian.Uint16(m.Data[16:])
		}
	}

	return 0
}
