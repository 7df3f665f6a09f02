package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// pki is the server's certificate authority. Its key never leaves the process that created it.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl, err := template("ovn-ebpf-lab-ca", nil)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, cert: cert, key: key}
	return p, os.WriteFile(p.path("ca.crt"), p.authority(), 0o644)
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func (p *pki) authority() []byte { return encodePEM("CERTIFICATE", p.cert.Raw) }

// issue creates a certificate for both ends of a connection and writes it to <file>.crt and
// <file>.key.
func (p *pki) issue(file string, s subject) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	tmpl, err := template(s.name, s.groups)
	if err != nil {
		return pair{}, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	tmpl.DNSNames = s.dns
	for _, a := range s.addrs {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.IP(a.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.cert, key.Public(), p.key)
	if err != nil {
		return pair{}, fmt.Errorf("issue certificate %s: %w", s.name, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	c := pair{cert: encodePEM("CERTIFICATE", der), key: encodePEM("EC PRIVATE KEY", keyDER)}
	if err := os.WriteFile(p.path(file+".crt"), c.cert, 0o644); err != nil {
		return pair{}, err
	}
	return c, os.WriteFile(p.path(file+".key"), c.key, 0o600)
}

func template(name string, groups []string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour), // a VM's clock may be behind
		NotAfter:     now.AddDate(1, 0, 0),
	}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
