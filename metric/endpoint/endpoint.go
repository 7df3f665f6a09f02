// Package endpoint serves a process's metrics and health by HTTP, or by HTTPS with certificates
// that may be replaced while the process runs.
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

	"github.com/ovn-ebpf/ovn-ebpf/keyfile"
	"github.com/ovn-ebpf/ovn-ebpf/listener"
)

// TLS names PEM files. The zero value means plain HTTP.
type TLS struct {
	Certificate, Key string
	ClientCA         string // of clients that may read protected pages; "": all clients may
}

// On reports whether HTTPS is served.
func (t TLS) On() bool { return t != TLS{} }

// Validate returns an error if a file name is missing. It does not read the files.
func (t TLS) Validate() error {
	switch {
	case !t.On():
		return nil
	case t.Certificate == "" || t.Key == "":
		return errors.New("metrics certificate: it takes both a certificate and its private key")
	}

	return nil
}

// Listen listens on addr. Each connection uses the current files. If they are invalid, for example
// while they are replaced one after the other, it uses the last valid ones.
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

// files keeps the last valid configuration.
type files struct {
	t   TLS
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	last   *tls.Config
	failed bool // logged
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

	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
		Certificates: []tls.Certificate{pair},
	}
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

	// Probes of health have no certificate.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	// A resumed session could belong to a client of a former CA.
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
		f.log.Warn("cannot load certificates, metrics are served with the previous ones", "error", err)
	}

	f.failed = true

	return f.last
}

// Protect restricts h to clients with a certificate of the client CA, if a client CA is set.
func (t TLS) Protect(h http.Handler) http.Handler {
	if t.ClientCA == "" {
		return h
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "a client certificate is required", http.StatusForbidden)
			return
		}

		h.ServeHTTP(w, r)
	})
}

// MaxConnections limits the connections of one endpoint. A scrape, a probe and a browser need one
// each.
const MaxConnections = 128

// Serve serves until ctx ends. Open requests then have one more second.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const grace = time.Second

	server := listener.NewPool(MaxConnections).Server(h, listener.Timeouts{})
	if _, plain := l.(*net.TCPListener); !plain {
		server.SetKeepAlivesEnabled(false) // a connection keeps the certificates with which it began
	}

	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()

		_ = server.Shutdown(shutdown) // later requests end with the process
	})
	defer stop()

	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}

	return nil
}
