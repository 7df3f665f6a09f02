// Package endpoint serves a process's metrics and health by HTTP, or by HTTPS with certificates
// that may be replaced while the process runs. Handler makes the pages, Listen the listener, and
// Serve answers the requests.
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

// TLS has the paths of PEM files. The zero value means plain HTTP.
type TLS struct {
	Certificate, Key string // of this server
	ClientCA         string // of clients that may read protected pages (Protect); "": all clients may
}

// On reports whether HTTPS is served.
func (t TLS) On() bool { return t != TLS{} }

// Validate returns an error if a file name is missing. It does not read the files.
func (t TLS) Validate() error {
	if t.On() && (t.Certificate == "" || t.Key == "") {
		return errors.New("metrics certificate: it takes both a certificate and its private key")
	}

	return nil
}

// Listen listens on addr. Each connection uses the current files. If they are invalid, for example
// while they are replaced one after the other, it uses the last valid ones.
func Listen(addr string, t TLS, log *slog.Logger) (net.Listener, error) {
	var certs *certificates

	if t.On() {
		config, err := t.load()
		if err != nil {
			return nil, fmt.Errorf("serve metrics: %w", err)
		}

		certs = &certificates{files: t, log: log, valid: config}
	}

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}

	if certs == nil {
		return l, nil
	}

	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return certs.current(), nil },
	}), nil
}

// load reads the files and returns the configuration of a connection.
func (t TLS) load() (*tls.Config, error) {
	key, err := keyfile.Read(t.Key)
	if err != nil {
		return nil, fmt.Errorf("load metrics key: %w", err)
	}

	certificate, err := os.ReadFile(t.Certificate)
	if err != nil {
		return nil, fmt.Errorf("load metrics certificate: %w", err)
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load metrics certificate %s with key %s: %w", t.Certificate, t.Key, err)
	}

	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
		Certificates: []tls.Certificate{pair},
	}
	if t.ClientCA == "" {
		return config, nil
	}

	ca, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("load metrics client CA: %w", err)
	}

	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("load metrics client CA %s: no certificate in it", t.ClientCA)
	}

	// Kubelet's probes of /healthz and /readyz have no certificate. Protect requires one for other
	// pages.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	// A resumed session could belong to a client of a former CA.
	config.SessionTicketsDisabled = true

	return config, nil
}

// certificates returns the configuration of each connection. It reads the files each time, so that
// replaced ones apply at once.
type certificates struct {
	files TLS
	log   *slog.Logger

	mu       sync.Mutex  // guards the fields below
	valid    *tls.Config // the last one that could be loaded
	isLogged bool        // that the files cannot be loaded
}

// current returns the configuration of the files. If they cannot be loaded, it returns the last
// valid one.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()

	config, err := c.files.load()
	if err == nil {
		c.valid, c.isLogged = config, false
		return config
	}

	if !c.isLogged {
		c.log.Warn("cannot load certificates, metrics are served with the previous ones", "error", err)
	}

	c.isLogged = true

	return c.valid
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

// Serve answers requests on l, which Listen has returned, until ctx ends, and then returns nil.
// Open requests then have one more second.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const grace = time.Second

	server := listener.NewPool(MaxConnections).Server(h, listener.Timeouts{})
	if _, isPlain := l.(*net.TCPListener); !isPlain {
		server.SetKeepAlivesEnabled(false) // a connection keeps the certificates of its handshake
	}

	stop := context.AfterFunc(ctx, func() {
		graceCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()

		_ = server.Shutdown(graceCtx) // requests that take longer end with the process
	})
	defer stop()

	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}

	return nil
}
