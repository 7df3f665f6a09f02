package ovs

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// This file and flowcounts.go speak OpenFlow 1.4 themselves. A message has the header ofp_header
// (7.1.1):
//
//	version uint8, type uint8, length uint16 with the header, xid uint32
//
// A reply has the xid of its request. All numbers are big-endian. The constants below are the types
// of the messages that keep a connection alive.
const (
	ofVersion     = 0x05 // OpenFlow 1.4
	ofHello       = 0    // OFPT_HELLO
	ofEchoRequest = 2    // OFPT_ECHO_REQUEST
	ofEchoReply   = 3    // OFPT_ECHO_REPLY
	ofHeaderLen   = 8
)

// WatchBridge holds an OpenFlow connection to the bridge until ctx ends, and then returns nil. It
// calls up each time the connection is established: at the start, and after a restart of
// ovs-vswitchd or a recreation of the bridge. After both, the bridge has lost its flows. It calls down
// when the connection is lost. Both functions are called from one goroutine and must not block.
func WatchBridge(ctx context.Context, rundir, bridge string, up, down func()) error {
	const firstWait, maxWait = 50 * time.Millisecond, time.Second

	path := bridgeSocket(rundir, bridge)
	wait := firstWait

	for ctx.Err() == nil {
		if err := holdOpenFlow(ctx, path, up); err == nil {
			wait = firstWait // the connection was up

			if ctx.Err() == nil {
				down()
			}
		}

		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}

		wait = min(2*wait, maxWait)
	}

	return nil
}

// holdOpenFlow returns nil when a connection that was up has ended, and an error if it was never
// up.
func holdOpenFlow(ctx context.Context, path string, up func()) error {
	conn, err := dialOpenFlow(ctx, path, nil)
	if err != nil {
		return err
	}
	defer conn.Close()

	// The end of ctx interrupts the reads below. The returned function cancels that.
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	established := false

	for {
		p, err := readOpenFlow(conn)
		if err != nil {
			if established {
				return nil
			}

			return fmt.Errorf("read from %s: %w", path, err)
		}

		switch p.kind {
		case ofHello:
			established = true

			up()
		case ofEchoRequest:
			if _, err := conn.Write(ofMessage(ofEchoReply, p.xid, p.body)); err != nil {
				return nil
			}
		}
	}
}

// dialOpenFlow connects to the bridge with the socket at path, and sends it OFPT_HELLO and
// messages.
func dialOpenFlow(ctx context.Context, path string, messages []byte) (net.Conn, error) {
	var d net.Dialer

	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}

	if _, err := conn.Write(append(ofMessage(ofHello, 1, nil), messages...)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet %s: %w", path, err)
	}

	return conn, nil
}

// ofPacket is a received message.
type ofPacket struct {
	kind byte // type in ofp_header
	xid  uint32
	body []byte // without the header
}

// ofMessage returns the message with a header and this body.
func ofMessage(kind byte, xid uint32, body []byte) []byte {
	m := make([]byte, ofHeaderLen, ofHeaderLen+len(body))
	m[0], m[1] = ofVersion, kind
	binary.BigEndian.PutUint16(m[2:], uint16(ofHeaderLen+len(body)))
	binary.BigEndian.PutUint32(m[4:], xid)

	return append(m, body...)
}

// readOpenFlow reads one message.
func readOpenFlow(r io.Reader) (ofPacket, error) {
	var h [ofHeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return ofPacket{}, err
	}

	length := binary.BigEndian.Uint16(h[2:])
	if length < ofHeaderLen {
		return ofPacket{}, fmt.Errorf("message of %d bytes is shorter than its header", length)
	}

	p := ofPacket{h[1], binary.BigEndian.Uint32(h[4:]), make([]byte, length-ofHeaderLen)}
	_, err := io.ReadFull(r, p.body)

	return p, err
}
