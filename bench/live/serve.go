package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits of what a server and a request may ask for.
const (
	MaxServe   = time.Hour // ServeOptions.For
	MaxSeconds = 60        // of a test
)

// request is the first line of a connection. The server's reply depends on Test:
//
//	usage       its usage, as JSON
//	tcp_rr      each byte that it receives
//	stream_out  when the client has closed its direction, the number of received bytes, as JSON
//	stream_in   a stream for Seconds
type request struct {
	Test    string `json:"test"`
	Seconds int    `json:"seconds,omitempty"`
	Limit   int    `json:"limit_mbit,omitempty"` // Mbit/s; 0: none
}

// ServeOptions configure Serve.
type ServeOptions struct {
	Listen netip.AddrPort
	Peer   netip.Addr // the only client that gets replies
	For    time.Duration
	// Ready, if not nil, gets the server's address.
	Ready func(netip.AddrPort)
}

// Serve serves the peer's measurements on TCP and UDP until its time is over or ctx ends; neither
// is an error.
func Serve(ctx context.Context, o ServeOptions) error {
	if !o.Peer.IsValid() || o.For <= 0 || o.For > MaxServe {
		return fmt.Errorf("serve: want a peer, and a time of at most %s", MaxServe)
	}

	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()

	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(o.Listen))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}

	at := tcp.Addr().(*net.TCPAddr).AddrPort()

	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.Listen.Addr(), at.Port())))
	if err != nil {
		return errors.Join(fmt.Errorf("serve: %w", err), tcp.Close())
	}

	stop := context.AfterFunc(ctx, func() { tcp.Close(); udp.Close() })
	defer stop()

	if o.Ready != nil {
		o.Ready(at)
	}

	var all sync.WaitGroup
	defer all.Wait()

	all.Go(func() { echo(udp, o.Peer) })

	for {
		c, err := tcp.AcceptTCP()

		if ctx.Err() != nil {
			return nil
		}

		if err != nil {
			cancel()
			return fmt.Errorf("serve: %w", err)
		}

		if from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); from != o.Peer.Unmap() {
			c.Close()
			continue
		}

		all.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			// The peer notices and reports a failed connection.
			_ = answer(c)
		})
	}
}

// echo sends the peer's datagrams back.
func echo(udp *net.UDPConn, peer netip.Addr) {
	buf := make([]byte, 2048)
	for {
		n, from, err := udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}

		if from.Addr().Unmap() == peer.Unmap() {
			_, _ = udp.WriteToUDPAddrPort(buf[:n], from)
		}
	}
}

// answer serves one connection, as described at request.
func answer(c *net.TCPConn) error {
	in := bufio.NewReader(c)

	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}

	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}

	switch r.Test {
	case "usage":
		u, err := readUsage(c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
		if err != nil {
			return err
		}

		return json.NewEncoder(c).Encode(u)
	case TCPRR:
		var buf [1]byte
		for {
			if _, err := io.ReadFull(in, buf[:]); err != nil {
				return err
			}

			if _, err := c.Write(buf[:]); err != nil {
				return err
			}
		}
	case StreamOut:
		n, err := io.Copy(io.Discard, in)
		if err != nil {
			return err
		}

		return json.NewEncoder(c).Encode(n)
	case StreamIn:
		if r.Seconds < 1 || r.Seconds > MaxSeconds {
			return errors.New("too long")
		}

		return stream(c, time.Duration(r.Seconds)*time.Second, r.Limit)
	}

	return fmt.Errorf("no test %q", r.Test)
}
