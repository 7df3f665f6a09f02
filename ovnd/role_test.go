package ovnd

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/authority"
	"github.com/ovn-ebpf/ovn-ebpf/test/certificate"
)

// stolen is a node's key, as an attacker uses it from anywhere.
type stolen struct {
	t   *testing.T
	tls TLS
	at  *member
}

// node issues the certificate of a node, by the authority of nodes.
func (m *member) node(data authority.Data, name string) stolen {
	m.t.Helper()

	must := func(err error) {
		m.t.Helper()

		if err != nil {
			m.t.Fatal(err)
		}
	}
	ca, err := tls.X509KeyPair(data["ovn-ebpf-node-ca"]["ca.crt"], data["ovn-ebpf-node-ca"]["ca.key"])
	must(err)
	pair, err := certificate.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &certificate.Pair{Cert: ca.Leaf, Key: ca.PrivateKey.(*ecdsa.PrivateKey)})
	must(err)
	// One file with the certificate and then its key, as client-go's library writes it.
	cert, key, err := pair.PEM()
	must(err)

	file := filepath.Join(m.t.TempDir(), name+".pem")
	must(os.WriteFile(file, append(cert, key...), 0o600))

	return stolen{m.t, TLS{Key: file, Cert: file, CA: m.RunDir + "/cacert.pem"}, m}
}

// sbctl runs ovn-sbctl at the port for nodes.
func (s stolen) sbctl(args ...string) (string, error) {
	argv := append([]string{"ovn-sbctl", "--timeout=20", "--no-leader-only", "--db=" + remote(s.at.Address, NodePort)}, s.tls.options()...)
	out, err := run(s.t.Context(), append(argv, args...)...)

	return strings.TrimSpace(string(out)), err
}

// TestNodeKeyWritesItsOwnChassis: a node registers its own chassis by its certificate. The server
// refuses rows of other nodes and tables outside the role. docs/security.md has this table.
func TestNodeKeyWritesItsOwnChassis(t *testing.T) {
	all, data := membersWith(t, 1)
	m := all[0]
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "ls-add", "s1", "--", "lsp-add", "s1", "p1", "--", "lsp-add", "s1", "p2")

	victim, thief := m.node(data, "node1"), m.node(data, "node2")
	for _, n := range []struct {
		stolen
		name, ip string
	}{{victim, "node1", "192.0.2.1"}, {thief, "node2", "192.0.2.2"}} {
		// The relay serves clients once it has the rows, and the roles among them.
		err := await(t.Context(), func() error { _, err := n.sbctl("--may-exist", "chassis-add", n.name, "geneve", n.ip); return err })
		if err != nil {
			t.Fatalf("%s registers itself: %v\n%s", n.name, err, m.show())
		}

		if _, err := n.sbctl("create", "Chassis_Private", "name="+n.name); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := victim.sbctl("set", "Chassis", "node1", "other_config:a=b"); err != nil {
		t.Error(err)
	}

	datapath, err := thief.sbctl("--bare", "--columns=_uuid", "list", "Datapath_Binding")
	if err != nil {
		t.Fatal(err)
	}

	encap, err := thief.sbctl("--bare", "--columns=_uuid", "find", "Encap", "chassis_name=node1")
	if err != nil {
		t.Fatal(err)
	}

	const refused, open = true, false
	for _, tc := range []struct {
		does    []string
		refused bool
	}{
		{[]string{"chassis-add", "node3", "geneve", "192.0.2.3"}, refused},
		{[]string{"chassis-del", "node1"}, refused},
		{[]string{"set", "Chassis", "node1", "other_config:a=c"}, refused},
		{[]string{"set", "Chassis_Private", "node1", "nb_cfg=7"}, refused},
		{[]string{"destroy", "Chassis_Private", "node1"}, refused},
		{[]string{"create", "Chassis_Private", "name=node3"}, refused},
		{[]string{"set", "Encap", encap, "ip=192.0.2.9"}, refused},
		{[]string{"create", "Encap", "chassis_name=node1", "type=geneve", "ip=192.0.2.9"}, refused},
		{[]string{"set", "SB_Global", ".", "nb_cfg=9"}, refused},
		{[]string{"destroy", "Datapath_Binding", datapath}, refused},
		{[]string{"set", "Port_Binding", "p1", "tunnel_key=9"}, refused},
		{[]string{"destroy", "Port_Binding", "p1"}, refused},
		{[]string{"--all", "destroy", "RBAC_Role"}, refused},
		{[]string{"--all", "destroy", "Logical_Flow"}, refused},
		{[]string{"create", "Connection", `target="ptcp:6640"`}, refused},
		// OVN's role does not restrict these rows to their node.
		{[]string{"set", "Port_Binding", "p2", "up=true"}, open},
		{[]string{"set", "Port_Binding", "p2", "options:peer=p1"}, open},
		{[]string{"lsp-bind", "p1", "node1"}, open},
		{[]string{"lsp-unbind", "p1"}, open},
		{[]string{"create", "MAC_Binding", "logical_port=p1", "ip=192.0.2.77", `mac="00:00:00:00:00:01"`, "datapath=" + datapath}, open},
		{[]string{"create", "FDB", `mac="00:00:00:00:00:01"`, "dp_key=1", "port_key=1"}, open},
		{[]string{"create", "Controller_Event", "event_type=empty_lb_backends"}, open},
		// An address that the next node may have.
		{[]string{"--id=@e", "create", "Encap", "chassis_name=node2", "type=geneve", "ip=192.0.2.3", "--", "add", "Chassis", "node2", "encaps", "@e"}, open},
	} {
		out, err := thief.sbctl(tc.does...)
		if denied := err != nil && strings.Contains(err.Error(), "permission error"); denied != tc.refused || !denied && err != nil {
			t.Errorf("node2's key: %v: refused %t, want %t: %s %v", tc.does, denied, tc.refused, out, err)
		}
	}

	if got := m.must("ovn-sbctl", "--bare", "--columns=name", "list", "Chassis"); len(strings.Fields(got)) != 2 {
		t.Errorf("chassis %q", got)
	}
}

// TestNodeKeyOpensOnePort: the databases' other ports accept no node's certificate, neither those
// for clients nor those between members. Clients over TLS write to the Southbound database by no
// other port.
func TestNodeKeyOpensOnePort(t *testing.T) {
	all, data := membersWith(t, 1)
	m := all[0]
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "ls-add", "s1")
	node := m.node(data, "node1")

	for _, d := range Databases() {
		for _, port := range []uint16{d.port, d.raft} {
			if err := handshake(t.Context(), m, node.tls, port); err == nil {
				t.Errorf("port %d accepts a node's certificate", port)
			}

			if err := handshake(t.Context(), m, m.TLS, port); err != nil {
				t.Errorf("port %d refuses a member's certificate: %v", port, err)
			}
		}
	}

	if err := handshake(t.Context(), m, node.tls, NodePort); err != nil {
		t.Error(err)
	}

	if err := handshake(t.Context(), m, m.TLS, NodePort); err == nil {
		t.Error("the port for nodes accepts a member's certificate")
	}

	if out, err := m.ask("ovn-sbctl", "chassis-add", "node3", "geneve", "192.0.2.3"); err == nil || !strings.Contains(err.Error(), "read-only") && !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("a member's certificate writes over TLS: %s %v", out, err)
	}
}

// handshake connects and reads: with TLS 1.3 the server refuses a certificate after the client's
// part.
func handshake(ctx context.Context, m *member, files TLS, port uint16) error {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return err
	}

	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.Address.String(), fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}

	if _, err := conn.Write([]byte(`{"method":"echo","id":"x","params":[]}`)); err != nil {
		return err
	}

	if _, err := conn.Read(make([]byte, 1)); err != nil && !os.IsTimeout(err) {
		return err
	}

	return nil
}
