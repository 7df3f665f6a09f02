package nb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/keyfile"
)

// Parse splits a comma-separated list of OVSDB endpoints and checks each:
// unix:<path>, tcp:<address>:<port> or ssl:<address>:<port>.
func Parse(address string) ([]string, error) {
	var out []string

	for e := range strings.SplitSeq(address, ",") {
		e = strings.TrimSpace(e)
		kind, rest, _ := strings.Cut(e, ":")

		_, _, err := net.SplitHostPort(rest)
		switch {
		case kind == "unix" && rest != "":
		case (kind == "tcp" || kind == "ssl") && err == nil:
		default:
			return nil, fmt.Errorf("parse database address %q: not unix:<path>, tcp:<address>:<port> or ssl:<address>:<port>",
				e)
		}

		out = append(out, e)
	}

	return out, nil
}

// TLS names the PEM files of an ssl: connection: the client's key and certificate, and the CA
// certificate of the server. They are read for each connection, so replaced files apply from the
// next connection.
type TLS struct{ Key, Certificate, CA string }

// Check returns an error if files for the endpoints are missing or invalid. Without an ssl:
// endpoint no files are required.
func (t TLS) Check(endpoints []string) error {
	_, err := t.Config(endpoints)
	return err
}

// Config reads the files and returns the configuration of a connection, or nil if no endpoint is
// ssl:. As in Open vSwitch, the server is verified by its CA and not by name, because certificates
// of "ovs-pki" contain no address.
func (t TLS) Config(endpoints []string) (*tls.Config, error) {
	isSSL := func(e string) bool { return strings.HasPrefix(e, "ssl:") }
	if !slices.ContainsFunc(endpoints, isSSL) {
		return nil, nil
	}

	if t.Key == "" || t.Certificate == "" || t.CA == "" {
		return nil, fmt.Errorf("connect to %s: ssl requires a private key, a certificate and a CA certificate",
			strings.Join(endpoints, ","))
	}

	keyPair, err := t.readKeyPair()
	if err != nil {
		return nil, fmt.Errorf("load certificate %s with key %s: %w", t.Certificate, t.Key, err)
	}

	pem, err := keyfile.Read(t.CA)
	if err != nil {
		return nil, fmt.Errorf("load CA certificate: %w", err)
	}

	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load CA certificate %s: no certificate in it", t.CA)
	}

	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		Certificates:       []tls.Certificate{keyPair},
		InsecureSkipVerify: true, // VerifyConnection verifies the chain without the name
		VerifyConnection:   func(s tls.ConnectionState) error { return signedBy(authorities, s.PeerCertificates) },
	}, nil
}

// readKeyPair reads the client's key and certificate.
func (t TLS) readKeyPair() (tls.Certificate, error) {
	key, err := keyfile.Read(t.Key)
	if err != nil {
		return tls.Certificate{}, err
	}

	certificate, err := keyfile.Read(t.Certificate)
	if err != nil {
		return tls.Certificate{}, err
	}

	return tls.X509KeyPair(certificate, key)
}

// signedBy verifies a server's certificate chain, without its name.
func signedBy(authorities *x509.CertPool, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("verify database server: no certificate")
	}

	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}

	// Certificates of "ovs-pki" have no extended key usages, or arbitrary ones.
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("verify database server: %w", err)
	}

	return nil
}
