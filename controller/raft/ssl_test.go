package raft

import (
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// selfSigned writes a key with a certificate that is its own authority.
func selfSigned(t *testing.T, name string) nb.TLS {
	t.Helper()

	pair, err := certificate.New(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}, nil)
	if err != nil {
		t.Fatal(err)
	}

	cert, key, err := pair.PEM()
	if err != nil {
		t.Fatal(err)
	}

	base := filepath.Join(t.TempDir(), name)
	for file, content := range map[string][]byte{".key": key, ".crt": cert} {
		if err := os.WriteFile(base+file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return nb.TLS{Key: base + ".key", Certificate: base + ".crt", CA: base + ".crt"}
}

// The server answers over ssl if the files of the controller authenticate both sides.
func TestSSL(t *testing.T) {
	s := nbtest.Start(t)
	ours, theirs := selfSigned(t, "ours"), selfSigned(t, "theirs")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	// The same database, relayed: it has a row in _Server, too.
	cmd := exec.Command("ovsdb-server", "--no-chdir", "--unixctl="+filepath.Join(t.TempDir(), "ctl"), "-vsyslog:off", "-vconsole:off",
		"--private-key="+ours.Key, "--certificate="+ours.Certificate, "--ca-cert="+ours.CA, "--remote=pssl:"+port+":127.0.0.1", "relay:OVN_Northbound:"+s.Endpoint)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})

	endpoints := []string{"ssl:127.0.0.1:" + port}

	var servers []Server

	nbtest.Eventually(t, "an answer over ssl", func() bool {
		servers = Northbound(endpoints, ours).Status(t.Context())
		return servers[0].Err == nil
	})

	if servers[0].Clustered || servers[0].Local != nil {
		t.Errorf("%+v", servers[0])
	}

	for what, files := range map[string]nb.TLS{"an authority that has not signed the server": theirs, "no files": {}} {
		if servers := Northbound(endpoints, files).Status(t.Context()); servers[0].Err == nil {
			t.Errorf("%s: %+v", what, servers)
		}
	}

	foreign := nb.TLS{Key: theirs.Key, Certificate: theirs.Certificate, CA: ours.CA}
	if servers := Northbound(endpoints, foreign).Status(t.Context()); servers[0].Err == nil || !strings.Contains(servers[0].Err.Error(), endpoints[0]) {
		t.Errorf("a client that the server does not know: %+v", servers)
	}
}
