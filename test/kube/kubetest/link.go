package kubetest

import (
	"context"
	"errors"
	"net"
	"sync"

	"k8s.io/client-go/rest"
)

// Link is a client's connection to an API server, which a test can cut.
type Link struct {
	mu    sync.Mutex // guards all below
	isCut bool
	conns []net.Conn
}

// Config returns a client configuration that uses the link.
func (l *Link) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = l.dial
	return config
}

func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return nil, errors.New("cut")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// Cut closes all connections and refuses new ones until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// Mend permits connections again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}
