// Package endpoint serves what is asked about a process by HTTP, or by HTTPS with
// certificates that may be replaced while it runs.
package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/keyfile"
	"github.com/ovn-ebpf/ovn-ebpf/listener"
)

// TLS are PEM files. The zero value is plain HTTP.
type TLS struct {
	Certificate, Key string
	ClientCA         string // of those who may see what is protected; "": every client may
}

// On tells whether it is HTTPS.
func (t TLS) On() bool { return t != TLS{} }

// Validate tells what is missing, not whether the files are there.
func (t TLS) Validate() error {
	switch {
	case !t.On():
		return nil
	case t.Certificate == "" || t.Key == "":
		return errors.New("metrics certificate: it takes both a certificate and its private key")
	}
	return nil
}

// Listen is on addr. Each connection gets the files as they are then; if they cannot
// be used, as they were: whoever replaces them does so one after the other.
func Listen(addr string, t TLS, log *slog.Logger) (net.Listener, error) {
	var files *files
	if t.On() {
		files = newFiles(t, log)
		config, err := files.load()
		if err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}
		files.last = config
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	if files == nil {
		return l, nil
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.current(), nil },
	}), nil
}

// files keeps what could be loaded last.
type files struct {
	t   TLS
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	last   *tls.Config
	failed bool // said so
}

func newFiles(t TLS, log *slog.Logger) *files { return &files{t: t, log: log} }

func (f *files) load() (*tls.Config, error) {
	key, err := keyfile.Read(f.t.Key)
	if err != nil {
		return nil, fmt.Errorf("load metrics key: %w", err)
	}
	certificate, err := os.ReadFile(f.t.Certificate)
	if err != nil {
		return nil, fmt.Errorf("load metrics certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load metrics certificate %s with key %s: %w", f.t.Certificate, f.t.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}
	if f.t.ClientCA == "" {
		return config, nil
	}
	ca, err := os.ReadFile(f.t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("load metrics client CA: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("load metrics client CA %s: no certificate in it", f.t.ClientCA)
	}
	// Probes have none, and may ask how the process is.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	// A session of before would know another CA's client.
	config.SessionTicketsDisabled = true
	return config, nil
}

func (f *files) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	config, err := f.load()
	if err == nil {
		f.last, f.failed = config, false
		return config
	}
	if !f.failed {
		f.log.Warn("metrics are served with the certificates of before", "error", err)
	}
	f.failed = true
	return f.last
}

// Protect lets h be seen by who has a certificate of the client CA, if there is one.
func (t TLS) Protect(h http.Handler) http.Handler {
	if t.ClientCA == "" {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "this takes a client certificate", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// MaxConnections bounds those of one endpoint. A scrape, a probe and a browser need one each.
const MaxConnections = 128

// Serve serves until ctx ends, and what is open then for a second more.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const grace = time.Second
	server := listener.NewPool(MaxConnections).Server(h, listener.Timeouts{})
	if _, plain := l.(*net.TCPListener); !plain {
		server.SetKeepAlivesEnabled(false) // a connection has the certificates it began with
	}
	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = server.Shutdown(shutdown) // what is still open after the grace goes with the process
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}
	return nil
}
