package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
)

// StreamReport is the result of a stream at the receiver.
type StreamReport struct {
	Bytes      int64
	MaxStallMS int64 // longest time without a byte, from the first to the end
	TookMS     int64 // from the first byte to the last
}

// serveCommand prints "ready" when all sockets listen, then serves until ctx ends.
func serveCommand(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("traffic serve", flag.ContinueOnError)
	tcp := f.String("tcp", "", "TCP `addresses` to listen on, separated by commas")
	udp := f.String("udp", "", "UDP `addresses` to listen on, like :80 or 192.0.2.1:80, separated by commas")
	sctp := f.String("sctp", "", "SCTP `addresses` to listen on, like 192.0.2.1:80, separated by commas")
	proto := f.Int("proto", 0, "IP protocol `number` to answer, like 47 for GRE; 0: none")

	name := f.String("name", "server", "`name` to answer with")
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	group, ctx := errgroup.WithContext(ctx)

	for _, addr := range list(*tcp) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}

		context.AfterFunc(ctx, func() { l.Close() })
		group.Go(func() error { return serveTCP(ctx, l, *name) })
	}

	for _, addr := range list(*udp) {
		if err := serveUDP(ctx, group, addr, *name); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}

	for _, addr := range list(*sctp) {
		if err := serveSCTP(ctx, group, addr, *name); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}

	if *proto != 0 {
		if err := serveProto(ctx, group, *proto, *name); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}

	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return err
	}

	<-ctx.Done()

	return group.Wait()
}

func list(s string) []string {
	if s == "" {
		return nil
	}

	return strings.Split(s, ",")
}

func serveTCP(ctx context.Context, l net.Listener, name string) error {
	for {
		c, err := l.Accept()

		if ctx.Err() != nil {
			return nil
		}

		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}

		go func() {
			defer c.Close()

			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()

			talk(c, name)
		}()
	}
}

// talk answers requests until the client is done or gone.
func talk(c net.Conn, name string) {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}

		line = strings.TrimSpace(line)
		switch command, argument, _ := strings.Cut(line, " "); command {
		case "sink":
			report := swallow(r)
			// The client has half-closed and waits for the report.
			_ = json.NewEncoder(c).Encode(report)

			return
		case "later": // the client sends no more: the server sends first
			d, err := time.ParseDuration(argument)
			if err != nil {
				return
			}

			time.Sleep(d)
		case "source":
			n, err := strconv.ParseInt(argument, 10, 64)
			if err != nil {
				return
			}

			if _, err := io.CopyN(c, zeros{}, n); err != nil {
				return
			}

			continue
		}

		if _, err := fmt.Fprintln(c, answer(line, name, c.RemoteAddr())); err != nil {
			return
		}
	}
}

// zeros is an endless source of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// answer returns the reply to a request other than sink and source.
func answer(line, name string, client net.Addr) string {
	if n, ok := strings.CutPrefix(line, "seq "); ok {
		return n
	}

	return name + " " + client.String()
}

func swallow(r io.Reader) StreamReport {
	var report StreamReport

	buf := make([]byte, 64<<10)

	var first, last time.Time

	for {
		n, err := r.Read(buf)

		now := time.Now()
		if last.IsZero() {
			first, last = now, now
		}

		report.MaxStallMS = max(report.MaxStallMS, now.Sub(last).Milliseconds())
		if n > 0 {
			report.TookMS = now.Sub(first).Milliseconds()
		}

		last = now

		report.Bytes += int64(n)
		if err != nil {
			return report
		}
	}
}

// serveUDP serves on a port of both families, or on an address with a port.
func serveUDP(ctx context.Context, group *errgroup.Group, addr, name string) error {
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().Is4() {
		return serveUDP4(ctx, group, addr, name)
	} else if err == nil {
		return serveUDP6(ctx, group, addr, name)
	}

	return errors.Join(serveUDP4(ctx, group, addr, name), serveUDP6(ctx, group, addr, name))
}

// serveUDP4 replies from the address of the request, which the kernel would not choose on a host
// with several addresses.
func serveUDP4(ctx context.Context, group *errgroup.Group, addr, name string) error {
	c, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}

	context.AfterFunc(ctx, func() { c.Close() })

	p := ipv4.NewPacketConn(c)
	if err := p.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return err
	}

	group.Go(func() error {
		return datagrams(ctx, name, func(b []byte) (int, net.Addr, func([]byte) error, error) {
			n, cm, from, err := p.ReadFrom(b)

			return n, from, func(b []byte) error {
				_, err := p.WriteTo(b, &ipv4.ControlMessage{Src: cm.Dst}, from)
				return err
			}, err
		})
	})

	return nil
}

// serveUDP6 is serveUDP4 for IPv6.
func serveUDP6(ctx context.Context, group *errgroup.Group, addr, name string) error {
	c, err := net.ListenPacket("udp6", addr)
	if err != nil {
		return err
	}

	context.AfterFunc(ctx, func() { c.Close() })

	p := ipv6.NewPacketConn(c)
	if err := p.SetControlMessage(ipv6.FlagDst, true); err != nil {
		return err
	}

	group.Go(func() error {
		return datagrams(ctx, name, func(b []byte) (int, net.Addr, func([]byte) error, error) {
			n, cm, from, err := p.ReadFrom(b)

			return n, from, func(b []byte) error {
				_, err := p.WriteTo(b, &ipv6.ControlMessage{Src: cm.Dst}, from)
				return err
			}, err
		})
	})

	return nil
}

// datagrams answers the datagrams from receive, by the function returned with each.
func datagrams(ctx context.Context, name string, receive func([]byte) (int, net.Addr, func([]byte) error, error)) error {
	buf := make([]byte, 64<<10)
	for {
		n, from, reply, err := receive(buf)

		if ctx.Err() != nil {
			return nil
		}

		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		// The client notices a missing reply.
		_ = reply([]byte(answer(strings.TrimSpace(string(buf[:n])), name, from)))
	}
}
