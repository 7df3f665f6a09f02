package listener_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/listener"
	"github.com/ovn-ebpf/ovn-ebpf/listener/listenertest"
)

const limit = 30

var short = listener.Timeouts{Header: 50 * time.Millisecond, Request: 100 * time.Millisecond, Idle: 50 * time.Millisecond}

// serve serves h with p on l until the test ends, and returns how to dial it.
func serve(t *testing.T, p *listener.Pool, h http.Handler, timeouts listener.Timeouts, l net.Listener) func() (net.Conn, error) {
	t.Helper()

	s := p.Server(h, timeouts)
	go s.Serve(l) //nolint:errcheck // it ends with the test

	t.Cleanup(func() { s.Close() })

	return func() (net.Conn, error) { return net.Dial(l.Addr().Network(), l.Addr().String()) }
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()

	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}

	return l
}

// patient never closes a connection by itself: what is closed was closed for another.
var patient = listener.Timeouts{Header: time.Hour, Request: time.Hour, Idle: time.Hour}

func flood(t *testing.T, dial func() (net.Conn, error)) {
	t.Helper()
	listenertest.FloodBy(t, limit, dial, listenertest.Silent, listenertest.Halfway, listenertest.Answered)
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestConnectionsAreBounded(t *testing.T) {
	for _, at := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"unix", filepath.Join(t.TempDir(), "s")},
	} {
		t.Run(at.network+" "+at.address, func(t *testing.T) {
			dial := serve(t, listener.NewPool(limit), http.HandlerFunc(ok), patient, listen(t, at.network, at.address))
			flood(t, dial)
		})
	}

	t.Run("two servers share a pool", func(t *testing.T) {
		p := listener.NewPool(limit)
		a := serve(t, p, http.HandlerFunc(ok), patient, listen(t, "tcp", "127.0.0.1:0"))
		b := serve(t, p, http.HandlerFunc(ok), patient, listen(t, "tcp", "127.0.0.1:0"))
		i := 0

		flood(t, func() (net.Conn, error) {
			if i++; i%2 == 0 {
				return a()
			}

			return b()
		})
	})
	t.Run("TLS", func(t *testing.T) {
		certificate := httptest.NewTLSServer(nil)
		certificate.Close()
		l := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), certificate.TLS)
		plain := serve(t, listener.NewPool(limit), http.HandlerFunc(ok), patient, l)
		i := 0

		flood(t, func() (net.Conn, error) {
			c, err := plain()
			if i++; err != nil || i%2 == 0 && i < limit+listenertest.Beyond {
				return c, err // no handshake
			}

			return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil //nolint:gosec // the test's own server
		})
	})
}

// A client that holds every connection keeps no other out, and loses its own.
func TestGreedyClientKeepsNobodyOut(t *testing.T) {
	l := listen(t, "tcp", ":0")
	dial := serve(t, listener.NewPool(limit), http.HandlerFunc(ok), patient, l)

	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	other := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}

		c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { c.Close() })

		return c
	}
	kept := other("127.0.0.2")

	flood(t, func() (net.Conn, error) { return net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)) })

	if err := listenertest.Ask(dial); err != nil {
		t.Error(err)
	}

	if err := answered(kept); err != nil {
		t.Errorf("the connection of a client that has one: %v", err)
	}
}

func answered(c net.Conn) error {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}

	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		r.Body.Close()
	}

	return err
}

// A request that is being answered is completed, however many come after it.
func TestBusyConnectionStays(t *testing.T) {
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	dial := serve(t, listener.NewPool(limit), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}

			<-goOn
		}

		ok(w, r)
	}), patient, listen(t, "unix", filepath.Join(t.TempDir(), "s")))

	slow, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()

	if _, err := io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	<-begun
	flood(t, dial)
	close(goOn)

	if _, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
}

// The server ends each of these by itself: the test only waits.
func TestSlowClientsAreClosed(t *testing.T) {
	big := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}

		chunk := make([]byte, 1<<20)
		for range 64 { // more than the sockets' buffers hold
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})

	for name, sent := range map[string]string{
		"nothing":          "",
		"half a header":    "GET / HTTP/1.1\r\n",
		"half a body":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
		"idle, answered":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"too large header": "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100<<10),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := serve(t, listener.NewPool(limit), big, short, listen(t, "tcp", "127.0.0.1:0"))()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			_, _ = io.WriteString(c, sent) // the server may close while it is written
			untilClosed(t, c)
		})
	}

	t.Run("reads no answer", func(t *testing.T) {
		done := make(chan struct{})
		dial := serve(t, listener.NewPool(limit), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			big(w, r)
			close(done)
		}), short, listen(t, "tcp", "127.0.0.1:0"))

		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()

		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}

		<-done
	})
}

func untilClosed(t *testing.T, c net.Conn) {
	t.Helper()

	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}

	_, err := io.Copy(io.Discard, c)
	if timeout, is := err.(net.Error); is && timeout.Timeout() { //nolint:errorlint // io.Copy returns it as it is
		t.Error("the server has not closed the connection")
	}
}
