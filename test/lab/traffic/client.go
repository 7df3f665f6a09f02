package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects from the configured source address and port.
func dial(ctx context.Context, network string, o options) (net.Conn, error) {
	d := net.Dialer{Timeout: o.timeout, Control: reuse}
	if o.sport != 0 || o.src != "" {
		local, err := source(o)
		if err != nil {
			return nil, err
		}

		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(local)
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(local)
		}
	}

	return d.DialContext(ctx, network, o.addr)
}

func source(o options) (netip.AddrPort, error) {
	to, err := netip.ParseAddrPort(o.addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", errUsage, err)
	}

	from := netip.IPv4Unspecified()
	if to.Addr().Is6() {
		from = netip.IPv6Unspecified()
	}

	if o.src != "" {
		if from, err = netip.ParseAddr(o.src); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%w: %w", errUsage, err)
		}
	}

	return netip.AddrPortFrom(from, uint16(o.sport)), nil
}

// reuse allows binding a source port while an earlier connection from it is in TIME_WAIT, and for
// several connections to different peers.
func reuse(_, _ string, raw syscall.RawConn) (err error) {
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); cerr != nil {
		return cerr
	}

	return err
}

func askTCP(ctx context.Context, o options) (string, error) {
	c, err := dial(ctx, "tcp", o)
	if err != nil {
		return "", err
	}
	defer c.Close()

	if err := c.SetDeadline(time.Now().Add(o.timeout)); err != nil {
		return "", err
	}

	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}

	line, err := bufio.NewReader(c).ReadString('\n')

	return strings.TrimSpace(line), err
}

// askUDP repeats the request every second until it gets a reply.
func askUDP(ctx context.Context, o options) (string, error) {
	c, err := dial(ctx, "udp", o)
	if err != nil {
		return "", err
	}
	defer c.Close()

	if o.options {
		if err := extensions(c); err != nil {
			return "", err
		}
	}

	buf := make([]byte, 2000)

	for end := time.Now().Add(o.timeout); ; {
		if _, err := io.WriteString(c, "who"); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
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

// AwaitReport is the result of waiting for a server.
type AwaitReport struct {
	Answer   string
	At       time.Time // of the answer
	Sent     int
	Connects int // more than one: sockets were destroyed
}

// await sends a request every interval, always from the same port, until the first reply. It
// ignores refusals. If its socket is destroyed, it connects a new one from the same port.
func await(ctx context.Context, o options) (AwaitReport, error) {
	var (
		r AwaitReport
		c net.Conn
	)
	for end := time.Now().Add(o.timeout); time.Now().Before(end) && ctx.Err() == nil; {
		if c == nil {
			var err error
			if c, err = dial(ctx, "udp", o); errors.Is(err, unix.ECONNREFUSED) { // a frontend without endpoints
				time.Sleep(o.interval)
				continue
			} else if err != nil {
				return r, err
			}

			o.sport = c.LocalAddr().(*net.UDPAddr).Port
			r.Connects++
		}

		answer, err := exchange(c, o.interval)
		switch {
		case err == nil:
			r.Answer, r.At = answer, time.Now()
			return r, c.Close()
		case errors.Is(err, unix.ECONNREFUSED):
			time.Sleep(o.interval)
		case !errors.Is(err, os.ErrDeadlineExceeded): // destroyed
			c.Close()
			c = nil

			continue
		}

		r.Sent++
	}

	return r, fmt.Errorf("await %s: no answer to %d requests", o.addr, r.Sent)
}

// exchange sends a request and waits for a reply.
func exchange(c net.Conn, wait time.Duration) (string, error) {
	if _, err := io.WriteString(c, "who"); err != nil {
		return "", err
	}

	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}

	buf := make([]byte, 2000)
	n, err := c.Read(buf)

	return string(buf[:n]), err
}

// later sends no data for o.duration and expects the server to send first.
func later(ctx context.Context, o options) (string, error) {
	c, err := dial(ctx, "tcp", o)
	if err != nil {
		return "", err
	}
	defer c.Close()

	if err := c.SetDeadline(time.Now().Add(o.duration + o.timeout)); err != nil {
		return "", err
	}

	if _, err := fmt.Fprintln(c, "later", o.duration); err != nil {
		return "", err
	}

	line, err := bufio.NewReader(c).ReadString('\n')

	return strings.TrimSpace(line), err
}

// pull reads a megabyte from the server and prints the number of bytes.
func pull(ctx context.Context, o options) (string, error) {
	const size = 1 << 20

	c, err := dial(ctx, "tcp", o)
	if err != nil {
		return "", err
	}
	defer c.Close()

	if err := c.SetDeadline(time.Now().Add(o.duration + o.timeout)); err != nil {
		return "", err
	}

	if _, err := fmt.Fprintln(c, "source", size); err != nil {
		return "", err
	}

	n, err := io.CopyN(io.Discard, c, size)

	return strconv.FormatInt(n, 10), err
}

// stream sends as much as possible for the duration; the server reports what it received.
func stream(ctx context.Context, o options) (StreamReport, error) {
	c, err := dial(ctx, "tcp", o)
	if err != nil {
		return StreamReport{}, err
	}
	defer c.Close()

	if _, err := fmt.Fprintln(c, "sink"); err != nil {
		return StreamReport{}, err
	}

	chunk := make([]byte, 64<<10)

	for end := time.Now().Add(o.duration); time.Now().Before(end) && ctx.Err() == nil; {
		if err := c.SetWriteDeadline(end.Add(o.timeout)); err != nil {
			return StreamReport{}, err
		}

		if _, err := c.Write(chunk); err != nil {
			return StreamReport{}, err
		}
	}

	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return StreamReport{}, err
	}
	// Allows time to drain full buffers.
	if err := c.SetReadDeadline(time.Now().Add(max(o.timeout, 30*time.Second))); err != nil {
		return StreamReport{}, err
	}

	var report StreamReport

	err = json.NewDecoder(c).Decode(&report)

	return report, err
}

// SweepReport counts the outcomes of connecting to many ports.
type SweepReport struct{ Attempts, Connected, Refused, Unanswered, Failed int }

// sweep connects from one source port to each port in turn, a few concurrently.
func sweep(ctx context.Context, o options) (SweepReport, error) {
	host, _, err := net.SplitHostPort(o.addr)
	if err != nil {
		host = o.addr
	}

	first, last, err := portRange(o.ports)
	if err != nil {
		return SweepReport{}, err
	}

	outcomes := make(chan error)
	slots := make(chan struct{}, 64)

	go func() {
		for port := first; port <= last; port++ {
			slots <- struct{}{}

			go func() {
				defer func() { <-slots }()

				one := o
				one.addr = net.JoinHostPort(host, strconv.Itoa(port))

				c, err := dial(ctx, "tcp", one)
				if err == nil {
					// A reset leaves no TIME_WAIT on the source port.
					err = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}

				outcomes <- err
			}()
		}
	}()

	var r SweepReport
	for r.Attempts = 0; r.Attempts <= last-first; r.Attempts++ {
		err := <-outcomes

		var timeout net.Error
		switch {
		case err == nil:
			r.Connected++
		case errors.Is(err, unix.ECONNREFUSED):
			r.Refused++
		case errors.As(err, &timeout) && timeout.Timeout():
			r.Unanswered++
		default:
			r.Failed++
		}
	}

	return r, ctx.Err()
}

func portRange(s string) (first, last int, err error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}

	f, err1 := strconv.ParseUint(a, 10, 16)

	l, err2 := strconv.ParseUint(b, 10, 16)
	if err := errors.Join(err1, err2); err != nil || l < f {
		return 0, 0, fmt.Errorf("%w: ports %q are not FIRST-LAST", errUsage, s)
	}

	return int(f), int(l), nil
}
