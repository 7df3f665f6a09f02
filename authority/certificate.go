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

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate for name. Without a signer it is an authority of its own.
func issue(name string, signer *pair, from time.Time, life time.Duration) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", name, err)
	}

	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"ovn-ebpf"}},
		NotBefore: from.Add(-skew), NotAfter: from.Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	parent, signing := template, key
	if signer == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	} else {
		parent, signing = signer.cert, signer.key
	}

	cert, err := create(template, parent, key.Public(), signing)
	if err != nil {
		return nil, err
	}

	return &pair{cert, key}, nil
}

// issueNode makes the certificate of a client, with the public key and name of its request.
func issueNode(
	request *x509.CertificateRequest,
	signer *pair,
	from time.Time,
	life time.Duration,
) (*x509.Certificate, error) {
	return create(&x509.Certificate{
		Subject:     pkix.Name{CommonName: request.Subject.CommonName},
		NotBefore:   from.Add(-min(skew, life/10)),
		NotAfter:    from.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, signer.cert, request.PublicKey, signer.key)
}

func create(
	template, parent *x509.Certificate,
	public any,
	signing *ecdsa.PrivateKey,
) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	template.BasicConstraintsValid = true

	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signing)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %q: %w", template.Subject.CommonName, err)
	}

	return cert, nil
}

func (p *pair) certPEM() []byte { return encode("CERTIFICATE", p.cert.Raw) }

func (p *pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}

	return encode("PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// parse reads a certificate and its key.
func parse(certPEM, keyPEM []byte) (*pair, error) {
	c, _ := pem.Decode(certPEM)

	k, _ := pem.Decode(keyPEM)
	if c == nil || k == nil {
		return nil, errors.New("parse certificate and key: no PEM")
	}

	cert, err := x509.ParseCertificate(c.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}

	parsed, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key of %q: %w", cert.Subject.CommonName, err)
	}

	key, is := parsed.(*ecdsa.PrivateKey)
	if !is || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("parse key of %q: it is not the certificate's", cert.Subject.CommonName)
	}

	return &pair{cert, key}, nil
}
