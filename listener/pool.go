package listener

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Pool bounds the number of connections of one or more servers. If it is full, a new connection
// replaces one of the client that has the most, so that one client cannot keep the others out. It
// is safe for concurrent use.
type Pool struct {
	limit int

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]*connection
	opened uint64 // number of connections so far
}

// connection is what chooseSurplus needs to know of an open connection.
type connection struct {
	client netip.Prefix // see clientOf
	number uint64       // in the order of opening
	isBusy bool         // a request is being read or answered
}

// NewPool returns an empty Pool for at most limit connections.
func NewPool(limit int) *Pool { return &Pool{limit: limit, conns: map[net.Conn]*connection{}} }

// connState is the ConnState of an http.Server, which the server calls after each change of a
// connection. It closes a connection if there is one too many.
func (p *Pool) connState(c net.Conn, s http.ConnState) {
	surplus := p.update(c, s)
	if surplus == nil {
		return
	}

	// Close of a tls.Conn itself may wait for a client that does not read.
	if t, isTLS := surplus.(*tls.Conn); isTLS {
		surplus = t.NetConn()
	}

	surplus.Close()
}

// update records the state of a connection. It returns the connection to close, or nil.
func (p *Pool) update(c net.Conn, s http.ConnState) (surplus net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch s {
	case http.StateNew:
		p.opened++

		p.conns[c] = &connection{client: clientOf(c), number: p.opened}
		if len(p.conns) > p.limit {
			surplus = p.chooseSurplus()
			delete(p.conns, surplus)
		}

		return surplus
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	default:
		if known := p.conns[c]; known != nil { // nil: update has chosen it to be closed
			known.isBusy = s == http.StateActive
		}
	}

	return nil
}

// chooseSurplus returns the oldest idle connection of the client with the most connections. If all
// of them are busy, it returns the newest, so that the requests that began first are completed.
func (p *Pool) chooseSurplus() net.Conn {
	counts := map[netip.Prefix]int{} // of connections, by client
	for _, c := range p.conns {
		counts[c.client]++
	}

	isChosenBefore := func(a, b *connection) bool {
		switch {
		case counts[a.client] != counts[b.client]:
			return counts[a.client] > counts[b.client]
		case a.isBusy != b.isBusy:
			return b.isBusy
		case a.isBusy: // both are
			return a.number > b.number
		}

		return a.number < b.number
	}

	var chosen net.Conn
	for conn, c := range p.conns {
		if chosen == nil || isChosenBefore(c, p.conns[chosen]) {
			chosen = conn
		}
	}

	return chosen
}

// clientOf returns the client of a connection: its IPv4 address, or its IPv6 network, because a
// client can have all addresses of a /64. All connections of unix sockets have the same client, the
// zero Prefix.
func clientOf(c net.Conn) netip.Prefix {
	tcp, isTCP := c.RemoteAddr().(*net.TCPAddr)
	if !isTCP {
		return netip.Prefix{}
	}

	addr := tcp.AddrPort().Addr().Unmap()

	bits := 64
	if addr.Is4() {
		bits = 32
	}

	client, _ := addr.WithZone("").Prefix(bits) // an error only for an invalid address: the zero Prefix

	return client
}
