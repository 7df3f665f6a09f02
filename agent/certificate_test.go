package agent

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// TestInvalidCertificateIsNamed: an agent whose chassis has the Node's name reports a certificate
// that is missing, damaged, expired or another node's, and none that is right. /readyz and an Event
// have it.
func TestInvalidCertificateIsNamed(t *testing.T) {
	r := newRig(t)
	r.cfg.ChassisOfNode, r.cfg.CertificateFile = true, filepath.Join(t.TempDir(), "chassis", "current.pem")
	r.createNode()
	r.start()
	r.awaitMissing("the controller has not given the node a subnet")

	const line = environment.Prefix + "the node's certificate for the Southbound database "
	r.awaitNoFault(line) // no directory: others bring the certificate

	if err := os.Mkdir(filepath.Dir(r.cfg.CertificateFile), 0o700); err != nil {
		t.Fatal(err)
	}

	r.awaitFault(environment.CertificateInvalid, line+"is missing")

	now := time.Now()
	for want, write := range map[string][]byte{
		"is damaged":                         []byte("x"),
		"expired at":                         certificateOf(t, "node1", now.Add(-2*time.Hour), now.Add(-time.Hour)),
		`is of "node2", not of node "node1"`: certificateOf(t, "node2", now.Add(-time.Hour), now.Add(time.Hour)),
		"is valid from":                      certificateOf(t, "node1", now.Add(time.Hour), now.Add(2*time.Hour)),
		"":                                   certificateOf(t, "node1", now.Add(-time.Hour), now.Add(time.Hour)),
	} {
		if err := os.WriteFile(r.cfg.CertificateFile, write, 0o600); err != nil {
			t.Fatal(err)
		}

		got := (&agent{cfg: r.cfg}).certificateInvalid(t.Context())
		if (got == nil) != (want == "") || got != nil && !strings.Contains(got.Text, want) {
			t.Errorf("fault %v, want %q", got, want)
		}
	}
}

// certificateOf returns a certificate with its key, in one file.
func certificateOf(t *testing.T, name string, from, until time.Time) []byte {
	t.Helper()

	pair, err := certificate.New(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until}, nil)
	if err != nil {
		t.Fatal(err)
	}

	cert, key, err := pair.PEM()
	if err != nil {
		t.Fatal(err)
	}

	return append(cert, key...)
}
