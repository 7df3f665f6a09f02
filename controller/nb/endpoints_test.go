package nb_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// TestSSLAuthenticatesBothEnds checks that a client and a server each reject a peer without a valid
// certificate.
func TestSSLAuthenticatesBothEnds(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := newAuthority(t, dir, "ours"), newAuthority(t, dir, "theirs")
	server, client := ours.sign(t, "server"), ours.sign(t, "client")
	stranger, late := theirs.sign(t, "stranger"), ours.signUntil(t, "late", time.Now().Add(-time.Minute))
	port := freePort(t)
	tool(t, "ovsdb-tool", "create", dir+"/db", nbtest.Schema(t, "ovn-nb.ovsschema"))
	daemon(t, "ovsdb-server", dir+"/db", "--no-chdir", "--unixctl="+dir+"/ctl", "-vsyslog:off",
		"--private-key="+server.Key, "--certificate="+server.Certificate, "--ca-cert="+ours.file,
		fmt.Sprintf("--remote=pssl:%d:127.0.0.1", port))
	endpoint := fmt.Sprintf("ssl:127.0.0.1:%d", port)

	good := dial(t, []string{endpoint}, nb.TLS{Key: client.Key, Certificate: client.Certificate, CA: ours.file})
	nbtest.Eventually(t, "connected by ssl", func() bool { return good.Ready() == nil })

	if errs := good.Commit(t.Context(), switches("n1")); len(errs) > 0 {
		t.Error(errs)
	}

	for what, tt := range map[string]struct {
		files nb.TLS
		want  string
	}{
		"server certificate of another CA": {nb.TLS{Key: client.Key, Certificate: client.Certificate, CA: theirs.file}, "verify database server"},
		"client certificate of another CA": {nb.TLS{Key: stranger.Key, Certificate: stranger.Certificate, CA: ours.file}, endpoint},
		"expired client certificate":       {nb.TLS{Key: late.Key, Certificate: late.Certificate, CA: ours.file}, endpoint},
		"key of another certificate":       {nb.TLS{Key: stranger.Key, Certificate: client.Certificate, CA: ours.file}, "private key"},
	} {
		bad := dial(t, []string{endpoint}, tt.files)
		nbtest.Eventually(t, what, func() bool {
			err := bad.Ready()
			return err != nil && strings.Contains(err.Error(), tt.want) && !strings.Contains(err.Error(), "was tried yet")
		})
	}

	if err := (nb.TLS{}).Check([]string{endpoint}); err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("without files: %v", err)
	}

	if err := (nb.TLS{}).Check([]string{"tcp:127.0.0.1:6641"}); err != nil {
		t.Errorf("no ssl: endpoint: error %v, want no file to be required", err)
	}
}

// TestSSLRejectsExpiredServer checks that a client rejects a server with an expired certificate.
func TestSSLRejectsExpiredServer(t *testing.T) {
	dir := t.TempDir()
	ours := newAuthority(t, dir, "ours")
	client := ours.sign(t, "client")
	s := newSSLServer(t, dir)
	s.start(t, ours.signUntil(t, "late", time.Now().Add(-time.Minute)), ours.file)
	bad := dial(t, s.endpoints(), nb.TLS{Key: client.Key, Certificate: client.Certificate, CA: ours.file})
	nbtest.Eventually(t, "expired server certificate", func() bool {
		err := bad.Ready()
		return err != nil && strings.Contains(err.Error(), "verify database server") && strings.Contains(err.Error(), "expired")
	})
}

// TestSSLRotation replaces the CA, the server's and the client's certificates one after the other
// during writes. The files are replaced; only the server is restarted.
func TestSSLRotation(t *testing.T) {
	dir := t.TempDir()
	first, second := newAuthority(t, dir, "first"), newAuthority(t, dir, "second")
	files := nb.TLS{Key: dir + "/key.pem", Certificate: dir + "/cert.pem", CA: dir + "/ca.pem"}
	use := func(from nb.TLS, authorities ...*authority) {
		var bundle []byte
		for _, a := range authorities {
			bundle = append(bundle, read(t, a.file)...)
		}

		for to, content := range map[string][]byte{files.Key: read(t, from.Key), files.Certificate: read(t, from.Certificate), files.CA: bundle} {
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	use(first.sign(t, "client1"), first)
	s := newSSLServer(t, dir)
	s.start(t, first.sign(t, "server1"), first.file)
	db := dial(t, s.endpoints(), files)
	writes := 0
	write := func(when string) {
		for range 5 {
			name := fmt.Sprintf("n%d", writes)
			nbtest.Eventually(t, when+": write "+name, func() bool { return len(db.Commit(t.Context(), switches(name))) == 0 })

			writes++
		}
	}
	write("initially")
	use(first.sign(t, "client2"), first, second)
	write("client trusts both CAs")
	s.start(t, second.sign(t, "server2"), first.file)
	write("server certificate of the second CA")
	use(second.sign(t, "client3"), second)
	write("client certificate of the second CA, connection with the old one")
	s.start(t, second.sign(t, "server3"), second.file)
	write("server trusts the second CA only")

	out := tool(t, "ovn-nbctl", "--db=unix:"+dir+"/sock", "--bare", "--columns=name", "list", "Logical_Switch")
	if got := len(strings.Fields(out)); got != writes {
		t.Errorf("%d switches, want %d without duplicates", got, writes)
	}
}

// sslServer is a database server that can be restarted with other files.
type sslServer struct {
	dir  string
	port int
	cmd  *exec.Cmd
}

func newSSLServer(t *testing.T, dir string) *sslServer {
	t.Helper()
	tool(t, "ovsdb-tool", "create", dir+"/db", nbtest.Schema(t, "ovn-nb.ovsschema"))

	return &sslServer{dir: dir, port: freePort(t)}
}

func (s *sslServer) endpoints() []string { return []string{fmt.Sprintf("ssl:127.0.0.1:%d", s.port)} }

func (s *sslServer) start(t *testing.T, files nb.TLS, ca string) {
	t.Helper()

	if s.cmd != nil {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		_ = s.cmd.Wait() // fails because it was killed
	}

	s.cmd = daemon(t, "ovsdb-server", s.dir+"/db", "--no-chdir", "--unixctl="+s.dir+"/ctl", "-vsyslog:off", "--remote=punix:"+s.dir+"/sock",
		"--private-key="+files.Key, "--certificate="+files.Certificate, "--ca-cert="+ca, fmt.Sprintf("--remote=pssl:%d:127.0.0.1", s.port))
}

func read(t *testing.T, path string) []byte {
	t.Helper()

	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

func switches(name string) map[plan.Key][]plan.Row {
	return map[plan.Key][]plan.Row{plan.NodeKey(name): {plan.LogicalSwitch{Name: name}}}
}

// dial keeps a database connected until the end of the test.
func dial(t *testing.T, endpoints []string, files nb.TLS) *nb.DB {
	t.Helper()

	db := nb.New(endpoints, slog.New(slog.DiscardHandler))
	db.UseTLS(files)

	ctx, cancel := context.WithCancel(context.Background())

	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	return db
}

// daemon runs a program until the end of the test.
func daemon(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()

	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has exited already
		_ = cmd.Wait()         // fails because it was killed
	})

	return cmd
}

func tool(t *testing.T, argv ...string) string {
	t.Helper()

	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}

	return string(out)
}

func freePort(t *testing.T) int {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	return l.Addr().(*net.TCPAddr).Port
}

// authority is a CA that signs temporary certificates.
type authority struct {
	dir, file string
	pair      *certificate.Pair
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()

	a := &authority{dir: dir, file: filepath.Join(dir, name+"-ca.pem")}

	var err error
	if a.pair, err = certificate.New(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil); err != nil {
		t.Fatal(err)
	}

	write(t, a.file, a.pair.CertPEM())

	return a
}

// sign returns the files of a certificate, without a CA.
func (a *authority) sign(t *testing.T, name string) nb.TLS {
	t.Helper()
	return a.signUntil(t, name, time.Now().Add(time.Hour))
}

func (a *authority) signUntil(t *testing.T, name string, end time.Time) nb.TLS {
	t.Helper()

	files := nb.TLS{Key: filepath.Join(a.dir, name+"-key.pem"), Certificate: filepath.Join(a.dir, name+"-cert.pem")}

	pair, err := certificate.New(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: end}, a.pair)
	if err != nil {
		t.Fatal(err)
	}

	cert, key, err := pair.PEM()
	if err != nil {
		t.Fatal(err)
	}

	write(t, files.Certificate, cert)
	write(t, files.Key, key)

	return files
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()

	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
