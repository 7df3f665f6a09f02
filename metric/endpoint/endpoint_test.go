package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// authority signs certificates.
type authority struct {
	pair *certificate.Pair
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()

	pair, err := certificate.New(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	if err != nil {
		t.Fatal(err)
	}

	return &authority{pair: pair, pem: pair.CertPEM()}
}

// issue makes a certificate and its key, in PEM.
func (a *authority) issue(t *testing.T, name string, usage x509.ExtKeyUsage) (cert, key []byte) {
	t.Helper()

	pair, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.pair)
	if err != nil {
		t.Fatal(err)
	}

	if cert, key, err = pair.PEM(); err != nil {
		t.Fatal(err)
	}

	return cert, key
}

// place is a server and its files.
type place struct {
	TLS
	url string
	log *bytes.Buffer
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()

	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, server, clients *authority) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{TLS: TLS{Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}, log: &bytes.Buffer{}}
	p.rotate(t, server)

	if clients != nil {
		p.ClientCA = filepath.Join(dir, "clients.pem")
		write(t, p.ClientCA, clients.pem)
	}

	l, err := Listen("127.0.0.1:0", p.TLS, slog.New(slog.NewTextHandler(p.log, nil)))
	if err != nil {
		t.Fatal(err)
	}

	p.url = "https://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

	ctx, cancel := context.WithCancel(t.Context())

	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, mux) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	return p
}

// rotate replaces the server's certificate and key.
func (p *place) rotate(t *testing.T, by *authority) {
	t.Helper()
	cert, key := by.issue(t, "server", x509.ExtKeyUsageServerAuth)
	write(t, p.Certificate, cert)
	write(t, p.Key, key)
}

// client trusts a server's authority, and has a certificate of another, or nil.
func client(t *testing.T, server, own *authority) *http.Client {
	t.Helper()

	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(server.pair.Cert)

	if own != nil {
		cert, key := own.issue(t, "prometheus", x509.ExtKeyUsageClientAuth)

		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// Whatever the server asks for: a client in earnest would send none of another authority's.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}

	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(c.CloseIdleConnections)

	return c
}

// get returns what is answered: a status and a body, or an error.
func get(c *http.Client, url string) string {
	res, err := c.Get(url)
	if err != nil {
		return "error: " + err.Error()
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "error: " + err.Error()
	}

	return res.Status + " " + strings.TrimSpace(string(body))
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()

	if !strings.Contains(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestClients(t *testing.T) {
	server, clients, other := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	p := serve(t, server, clients)
	expect(t, "a client of the CA", get(client(t, server, clients), p.url+"/metrics"), "200 OK metrics")
	expect(t, "a client without a certificate", get(client(t, server, nil), p.url+"/metrics"), "403 Forbidden")
	expect(t, "its probe", get(client(t, server, nil), p.url+"/healthz"), "200 OK ok")
	expect(t, "a client of another CA", get(client(t, server, other), p.url+"/metrics"), "error: ")
	expect(t, "its probe", get(client(t, server, other), p.url+"/healthz"), "error: ")
	expect(t, "a client that expects another server", get(client(t, other, clients), p.url+"/metrics"), "unknown authority")
	expect(t, "plain HTTP", get(http.DefaultClient, strings.Replace(p.url, "https", "http", 1)+"/metrics"), "400 Bad Request")

	// Who may see is a file, too.
	c := client(t, server, other)
	write(t, p.ClientCA, other.pem)
	expect(t, "a client of the new CA", get(c, p.url+"/metrics"), "200 OK metrics")
	expect(t, "a client of the CA of before", get(client(t, server, clients), p.url+"/metrics"), "error: ")
}

func TestServerOnly(t *testing.T) {
	server := newAuthority(t, "servers")
	p := serve(t, server, nil)
	expect(t, "any client", get(client(t, server, nil), p.url+"/metrics"), "200 OK metrics")
}

// A certificate is replaced while the server runs, for a client that goes on, too.
func TestRotation(t *testing.T) {
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	p := serve(t, before, nil)
	old, renewed := client(t, before, nil), client(t, after, nil)
	expect(t, "before", get(old, p.url+"/metrics"), "200 OK metrics")
	expect(t, "too early", get(renewed, p.url+"/metrics"), "unknown authority")

	cert, key := after.issue(t, "server", x509.ExtKeyUsageServerAuth)
	write(t, p.Certificate, cert) // and not yet the key
	expect(t, "between the files", get(old, p.url+"/metrics"), "200 OK metrics")
	expect(t, "between the files, once more", get(old, p.url+"/metrics"), "200 OK metrics")

	if n := strings.Count(p.log.String(), "served with the previous ones"); n != 1 {
		t.Errorf("said %d times that the files do not fit: %s", n, p.log)
	}

	write(t, p.Key, key)
	expect(t, "after", get(renewed, p.url+"/metrics"), "200 OK metrics")
	expect(t, "a client that has not heard", get(old, p.url+"/metrics"), "unknown authority")
}

func TestMistakes(t *testing.T) {
	server := newAuthority(t, "servers")
	dir := t.TempDir()
	cert, key := server.issue(t, "server", x509.ExtKeyUsageServerAuth)
	_, wrong := server.issue(t, "another", x509.ExtKeyUsageServerAuth)
	path := func(name string, b []byte) string {
		write(t, filepath.Join(dir, name), b)
		return filepath.Join(dir, name)
	}

	c, k := path("cert", cert), path("key", key)
	for _, tt := range []struct {
		name, want string
		tls        TLS
	}{
		{"no such key", "load metrics key", TLS{Certificate: c, Key: dir + "/none"}},
		{"no such certificate", "load metrics certificate", TLS{Certificate: dir + "/none", Key: k}},
		{"another's key", "does not match", TLS{Certificate: c, Key: path("wrong", wrong)}},
		{"no such CA", "load metrics client CA", TLS{Certificate: c, Key: k, ClientCA: dir + "/none"}},
		{"no CA in the file", "no certificate in it", TLS{Certificate: c, Key: k, ClientCA: path("empty", nil)}},
	} {
		l, err := Listen("127.0.0.1:0", tt.tls, slog.New(slog.DiscardHandler))
		if err == nil {
			l.Close()
			t.Errorf("%s: it listens", tt.name)

			continue
		}

		expect(t, tt.name, err.Error(), tt.want)
	}

	for _, half := range []TLS{{Certificate: c}, {Key: k}, {ClientCA: c}, {Key: k, ClientCA: c}} {
		if half.Validate() == nil {
			t.Errorf("%+v is taken for complete", half)
		}
	}

	if err := errorsOf(TLS{}, TLS{Certificate: c, Key: k}); err != nil {
		t.Error(err)
	}
}

func errorsOf(all ...TLS) error {
	for _, t := range all {
		if err := t.Validate(); err != nil {
			return err
		}
	}

	return nil
}
