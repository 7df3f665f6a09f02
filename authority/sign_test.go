package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// signing is an API server with a running Authority.
type signing struct {
	*Authority
	t      *testing.T
	config *rest.Config
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{t: t, Authority: New(), config: kubetest.Start(t).RestConfig()}
	s.Client, s.Log = kubernetes.NewForConfigOrDie(s.config), slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx := t.Context()
	_, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}, metav1.CreateOptions{})
	s.must(err)

	for _, account := range []string{NodeAccount, "other"} {
		_, err = s.Client.CoreV1().ServiceAccounts(s.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		s.must(err)
	}

	_, err = s.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "requesters"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + s.Namespace}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.must(s.Sync(ctx))

	return s
}

func (s *signing) must(err error) {
	s.t.Helper()

	if err != nil {
		s.t.Fatal(err)
	}
}

// run starts the authority until the test ends.
func (s *signing) run() {
	ctx, cancel := context.WithCancel(s.t.Context())

	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	s.t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// as returns a client with the token of the account's pod on the node.
func (s *signing) as(account, node string) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(kubetest.Token(s.t, s.config, s.Namespace, account, node))
}

// await calls done until it returns true.
func (s *signing) await(what string, done func() bool) {
	s.t.Helper()

	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestNodeGetsItsCertificate: a node's pod gets a certificate with its Node's name, which the port
// for nodes accepts. It is renewed while its reader runs, and one with another name is replaced.
func TestNodeGetsItsCertificate(t *testing.T) {
	s := newSigning(t)
	s.NodeLife = 10 * time.Second
	s.run()

	dir := filepath.Join(t.TempDir(), "chassis")
	current := func() *x509.Certificate {
		// It is read once: the file may be replaced between two reads.
		content, err := os.ReadFile(filepath.Join(dir, NodeFile))
		if err != nil {
			return nil
		}

		pair, err := tls.X509KeyPair(content, content)
		if err != nil {
			t.Errorf("read certificate: %v", err)
			return nil
		}

		return pair.Leaf
	}
	node := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)

		client := s.as(NodeAccount, name)
		go func() { ended <- RunNode(ctx, client, name, dir, s.Log) }()

		return func() { cancel(); s.must(<-ended) }
	}
	stop := node("node1")

	s.await("certificate", func() bool { return current() != nil })

	first := current()
	if first.Subject.CommonName != "node1" {
		t.Errorf("certificate of %s", first.Subject)
	}

	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(t.Context(), "ovn-ebpf-central", metav1.GetOptions{})
	s.must(err)

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret.Data["node-cacert.pem"])

	if _, err := first.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}

	s.await("renewal", func() bool { return !current().Equal(first) })
	stop()

	defer node("node2")() // the disk of node1 in another machine

	s.await("certificate with the other name", func() bool { return current().Subject.CommonName == "node2" })
}

// TestRequestsForOthersAreDenied: a certificate for another node's name, or for a requester that is
// not on that node, is refused, also if an administrator has approved it.
func TestRequestsForOthersAreDenied(t *testing.T) {
	s := newSigning(t)
	s.run()

	ctx := t.Context()

	for name, tc := range map[string]struct {
		client  kubernetes.Interface
		cn      string
		dns     []string
		usages  []certificatesv1.KeyUsage
		approve bool
		says    string
	}{
		"own name":               {client: s.as(NodeAccount, "node1"), cn: "node1"},
		"another node's name":    {client: s.as(NodeAccount, "node1"), cn: "node2", says: `runs on node "node1", and asks for the name "node2"`},
		"approved by hand":       {client: s.as(NodeAccount, "node1"), cn: "node2", approve: true, says: `asks for the name "node2"`},
		"another account":        {client: s.as("other", "node1"), cn: "node1", says: "system:serviceaccount:ovn-ebpf:other"},
		"a token of no pod":      {client: s.as(NodeAccount, ""), cn: "node1", says: "names 0 nodes"},
		"an administrator":       {client: s.Client, cn: "node1", says: "the requester is"},
		"a server's certificate": {client: s.as(NodeAccount, "node1"), cn: "node1", usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, says: "server auth"},
		"another name beside it": {client: s.as(NodeAccount, "node1"), cn: "node1", dns: []string{"node2"}, says: "other names"},
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		s.must(err)
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: tc.cn}, DNSNames: tc.dns}, key)
		s.must(err)

		if tc.usages == nil {
			tc.usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		}

		r, err := tc.client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: SignerName, Usages: tc.usages, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
		}, metav1.CreateOptions{})
		s.must(err)

		if tc.approve {
			r.Status.Conditions = append(r.Status.Conditions, condition(certificatesv1.CertificateApproved, "by hand"))
			_, _ = s.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
		}

		said := ""

		s.await(name, func() bool {
			r, err = s.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, r.Name, metav1.GetOptions{})
			s.must(err)

			i := slices.IndexFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
			})
			if i >= 0 {
				said = r.Status.Conditions[i].Message
			}

			return said != "" || len(r.Status.Certificate) > 0
		})

		if issued := len(r.Status.Certificate) > 0; issued != (tc.says == "") || !strings.Contains(said, tc.says) {
			t.Errorf("%s: issued %t, condition %q, want %q", name, issued, said, tc.says)
		}
	}
}
