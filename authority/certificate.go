package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// pair is a certificate with its key, an ECDSA key on the curve P-256.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issueAuthority makes the certificate of a new authority, which it signs itself.
func issueAuthority(now time.Time) (*pair, error) {
	return issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "ovn-ebpf authority", Organization: []string{"ovn-ebpf"}},
		IsCA:     true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, now, authorityLife)
}

// issueMember makes a certificate with a key of its own, for servers and clients of the databases.
func issueMember(name string, ca *pair, now time.Time) (*pair, error) {
	return issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{"ovn-ebpf"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, now, memberLife)
}

// issue completes the template, makes a key, and lets the authority sign. Without one, the
// certificate is signed by its own key.
func issue(template *x509.Certificate, ca *pair, now time.Time, life time.Duration) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	template.NotBefore = now.Add(-clockSkew)
	template.NotAfter = now.Add(life)

	if ca == nil {
		ca = &pair{template, key}
	}

	cert, err := create(template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}

	return &pair{cert, key}, nil
}

// issueNode makes the certificate of a node, a client, with the public key and the name of its
// request.
func issueNode(
	request *x509.CertificateRequest,
	ca *pair,
	now time.Time,
	life time.Duration,
) (*x509.Certificate, error) {
	return create(&x509.Certificate{
		Subject: pkix.Name{CommonName: request.Subject.CommonName},
		// client-go renews a certificate when a share of the time since NotBefore has passed. With a
		// short life, the whole skew would be most of this time.
		NotBefore:   now.Add(-min(clockSkew, life/10)),
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.cert, request.PublicKey, ca.key)
}

// create signs the template with the key of the parent.
func create(
	template, parent *x509.Certificate,
	publicKey any,
	parentKey *ecdsa.PrivateKey,
) (*x509.Certificate, error) {
	var err error
	// A random number of 120 bits is unique without a register. The limit is 20 bytes (RFC 5280).
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	template.BasicConstraintsValid = true

	der, err := x509.CreateCertificate(rand.Reader, template, parent, publicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	return cert, nil
}

func (p *pair) certPEM() []byte { return encodePEM("CERTIFICATE", p.cert.Raw) }

func (p *pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}

	return encodePEM("PRIVATE KEY", der), nil
}

// encodePEM returns a PEM block of a type, such as CERTIFICATE.
func encodePEM(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

// parsePair parses a certificate and its key.
func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	certBlock, _ := pem.Decode(certPEM)

	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("parse certificate and key: no PEM")
	}

	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}

	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key of %q: %w", cert.Subject.CommonName, err)
	}

	key, isECDSA := parsed.(*ecdsa.PrivateKey)
	if !isECDSA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("parse key of %q: it is not the certificate's", cert.Subject.CommonName)
	}

	return &pair{cert, key}, nil
}
