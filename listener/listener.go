// Package listener makes HTTP servers that no client can exhaust. Each one bounds how long a
// client may take, how large a header may be, and how many connections are open at a time.
package listener

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// maxHeader is ample for a probe, a scrape and a browser. The default, 1 MiB, would let the
// connections of a full Pool hold gigabytes.
const maxHeader = 16 << 10

// Timeouts bound what a client may take. A zero field is the default.
type Timeouts struct {
	Header  time.Duration // until the header is read, a TLS handshake included; default 10 s
	Request time.Duration // until the request is read, and again until the answer is written; default 30 s
	Idle    time.Duration // between two requests; default 30 s
}

func (t Timeouts) withDefaults() Timeouts {
	fill := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}

	fill(&t.Header, 10*time.Second)
	fill(&t.Request, 30*time.Second)
	fill(&t.Idle, 30*time.Second)

	return t
}

// Server returns a server whose connections count in p. The caller may serve several
// listeners with it, and several servers may share p.
func (p *Pool) Server(h http.Handler, t Timeouts) *http.Server {
	t = t.withDefaults()

	return &http.Server{
		Handler: h, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: t.Header, ReadTimeout: t.Request, WriteTimeout: t.Request, IdleTimeout: t.Idle,
		ConnState: p.note,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0), // a client's mistakes would fill the log
	}
}

// remote returns whose connection c is: an IPv4 address, or an IPv6 network, of which one client
// may have every address. All clients of a unix socket are one.
func remote(c net.Conn) netip.Prefix {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}

	a := tcp.AddrPort().Addr().Unmap()

	bits := 64
	if a.Is4() {
		bits = 32
	}

	p, _ := a.WithZone("").Prefix(bits) // the zero Prefix for no address

	return p
}
