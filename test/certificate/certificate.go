// Package certificate makes keys and certificates for tests.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Pair is a certificate with its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// New makes a certificate of the template, signed by another one, or by itself if by is nil. It fills
// in a serial number, and a validity from an hour ago for a year, where the template has none. A clock
// that is behind, as in a VM, accepts it.
func New(template *x509.Certificate, by *Pair) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	if template.SerialNumber == nil {
		if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
			return nil, err
		}
	}

	now := time.Now()
	if template.NotBefore.IsZero() {
		template.NotBefore = now.Add(-time.Hour)
	}

	if template.NotAfter.IsZero() {
		template.NotAfter = now.AddDate(1, 0, 0)
	}

	parent, signing := template, key
	if by != nil {
		parent, signing = by.Cert, by.Key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signing)
	if err != nil {
		return nil, fmt.Errorf("make certificate %q: %w", template.Subject.CommonName, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate %q: %w", template.Subject.CommonName, err)
	}

	return &Pair{Cert: cert, Key: key}, nil
}

// CertPEM returns the certificate in PEM.
func (p *Pair) CertPEM() []byte { return encode("CERTIFICATE", p.Cert.Raw) }

// PEM returns certificate and key in PEM, the key as client-go's library writes it (SEC 1).
func (p *Pair) PEM() (cert, key []byte, err error) {
	der, err := x509.MarshalECPrivateKey(p.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}

	return p.CertPEM(), encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
