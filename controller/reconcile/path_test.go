package reconcile

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// databasePath is a way to a database that can be cut, in the middle of whatever
// is on it.
type databasePath struct {
	endpoint string

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

func newDatabasePath(t *testing.T, endpoint string) *databasePath {
	t.Helper()

	dir, err := os.MkdirTemp("", "path")
	if err != nil {
		t.Fatal(err)
	}

	listener, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}

	p := &databasePath{endpoint: "unix:" + filepath.Join(dir, "sock"), conns: map[net.Conn]struct{}{}}

	t.Cleanup(func() {
		listener.Close()
		p.cut()
		os.RemoveAll(dir)
	})

	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}

			if err == nil {
				go p.serve(conn, strings.TrimPrefix(endpoint, "unix:"))
			}
		}
	}()

	return p
}

func (p *databasePath) serve(conn net.Conn, to string) {
	defer conn.Close()

	server, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer server.Close()

	p.mu.Lock()
	p.conns[conn], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()

	over := make(chan struct{}, 2)

	for _, pair := range [][2]net.Conn{{conn, server}, {server, conn}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // it ends when either end does

			over <- struct{}{}
		}()
	}

	<-over
	p.mu.Lock()
	delete(p.conns, conn)
	delete(p.conns, server)
	p.mu.Unlock()
}

// cut closes all connections.
func (p *databasePath) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()

	for c := range p.conns {
		c.Close()
	}
}
