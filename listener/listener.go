// Package listener makes HTTP servers that no client can exhaust. A server (Pool.Server) bounds the
// time of a request, the size of its header, and the number of open connections. A Pool has the
// connections of one server, or of several that share a limit.
package listener

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"
)

// maxHeaderBytes bounds the header of a request. It is ample for a probe, a scrape and a browser.
// With the default of 1 MiB, the connections of a full Pool could use gigabytes.
const maxHeaderBytes = 16 << 10

// Timeouts bound the time that a client may take. A field of zero is the default.
type Timeouts struct {
	Header  time.Duration // until the header is read, a TLS handshake included; default 10 s
	Request time.Duration // until the request is read, and again until the answer is written; default 30 s
	Idle    time.Duration // between two requests; default 30 s
}

// withDefaults returns the timeouts with the default of each zero field.
func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Header:  cmp.Or(t.Header, 10*time.Second),
		Request: cmp.Or(t.Request, 30*time.Second),
		Idle:    cmp.Or(t.Idle, 30*time.Second),
	}
}

// Server returns a server whose connections count in p. Several servers can share p, and a server
// can serve several listeners. The caller may change the server before it serves, but not its
// ConnState.
func (p *Pool) Server(h http.Handler, t Timeouts) *http.Server {
	t = t.withDefaults()

	return &http.Server{
		Handler:           h,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: t.Header,
		ReadTimeout:       t.Request,
		WriteTimeout:      t.Request,
		IdleTimeout:       t.Idle,
		ConnState:         p.connState,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0), // a client's mistakes would fill the log
	}
}
