package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// pki is the server's certificate authority. Its key never leaves the process that created it.
type pki struct {
	dir string
	own *certificate.Pair
}

// pair is a certificate with its key, both in PEM.
type pair struct{ cert, key []byte }

// subject is the content of a certificate.
type subject struct {
	name   string
	groups []string
	dns    []string
	addrs  []netip.Addr
}

// newPKI creates an authority and writes ca.crt to dir.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	own, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ovn-ebpf-lab-ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
	if err != nil {
		return nil, err
	}

	p := &pki{dir: dir, own: own}

	return p, os.WriteFile(p.path("ca.crt"), p.authority(), 0o644)
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func (p *pki) authority() []byte { return p.own.CertPEM() }

// issue creates a certificate for both ends of a connection and writes it to <file>.crt and
// <file>.key.
func (p *pki) issue(file string, s subject) (pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.name, Organization: s.groups}, KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: s.dns,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, a := range s.addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(a.AsSlice()))
	}

	issued, err := certificate.New(template, p.own)
	if err != nil {
		return pair{}, err
	}

	var c pair
	if c.cert, c.key, err = issued.PEM(); err != nil {
		return pair{}, err
	}

	if err := os.WriteFile(p.path(file+".crt"), c.cert, 0o644); err != nil {
		return pair{}, err
	}

	return c, os.WriteFile(p.path(file+".key"), c.key, 0o600)
}
