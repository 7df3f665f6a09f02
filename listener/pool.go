package listener

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Pool bounds the connections of one or more servers. When it is full a new connection
// replaces one of the client that holds the most, so that one client cannot keep the others
// out. It is safe for concurrent use.
type Pool struct {
	limit int

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]*connection
	next  uint64
}

type connection struct {
	remote netip.Prefix
	born   uint64
	busy   bool // a request is being read or answered
}

// NewPool returns an empty Pool for at most limit connections.
func NewPool(limit int) *Pool { return &Pool{limit: limit, conns: map[net.Conn]*connection{}} }

// note is used as an http.Server's ConnState. It closes the connection that must go.
func (p *Pool) note(c net.Conn, s http.ConnState) {
	if victim := p.change(c, s); victim != nil {
		// Closing a tls.Conn itself may wait for a client that does not read.
		if t, ok := victim.(*tls.Conn); ok {
			victim = t.NetConn()
		}

		victim.Close()
	}
}

// change returns the connection that must be closed to keep the limit, or nil.
func (p *Pool) change(c net.Conn, s http.ConnState) (victim net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch s {
	case http.StateNew:
		p.next++

		p.conns[c] = &connection{remote: remote(c), born: p.next}
		if len(p.conns) > p.limit {
			victim = p.victim()
			delete(p.conns, victim)
		}

		return victim
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	default:
		if of := p.conns[c]; of != nil { // nil: it has been closed for another
			of.busy = s == http.StateActive
		}
	}

	return nil
}

// victim returns, of the client with the most connections, the oldest idle one. Without an
// idle one it is the newest, so that what a client has begun is completed.
func (p *Pool) victim() net.Conn {
	held := map[netip.Prefix]int{}
	for _, of := range p.conns {
		held[of.remote]++
	}

	var worst net.Conn
	for c, of := range p.conns {
		if worst == nil || p.worse(of, p.conns[worst], held) {
			worst = c
		}
	}

	return worst
}

func (p *Pool) worse(a, b *connection, held map[netip.Prefix]int) bool {
	switch {
	case held[a.remote] != held[b.remote]:
		return held[a.remote] > held[b.remote]
	case a.busy != b.busy:
		return b.busy
	case a.busy:
		return a.born > b.born
	}

	return a.born < b.born
}
