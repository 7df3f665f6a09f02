package kube

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// RestConfig returns a client configuration of this process as cluster administrator. It dials
// inside the server's network namespace, so it works from any namespace.
func (s *Server) RestConfig() *rest.Config {
	c := &rest.Config{
		Host: "https://" + s.access.Address.String(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: s.access.Authority, CertData: s.access.Cert, KeyData: s.access.Key,
		},
		QPS: -1, // no client-side limit
	}
	if s.access.Netns != "" {
		c.Dial = netns.Dialer(s.access.Netns)
	}

	return c
}

// Kubeconfig writes the same access to a file, for programs that use the server's advertised
// address.
func (s *Server) Kubeconfig(path string) error {
	return s.kubeconfig(path, pair{cert: s.access.Cert, key: s.access.Key})
}

// Identity issues a certificate for a user of the cluster, also valid for serving on addrs. It
// writes <name>.crt, <name>.key and <name>.kubeconfig to PKI and returns the path of the
// kubeconfig. Only the process that started the server has the authority's key.
func (s *Server) Identity(name, user string, groups []string, addrs ...netip.Addr) (string, error) {
	if s.pki == nil {
		return "", fmt.Errorf("issue certificate %s: the server was started by another process", user)
	}

	c, err := s.pki.issue(name, subject{name: user, groups: groups, dns: []string{name}, addrs: addrs})
	if err != nil {
		return "", err
	}

	path := filepath.Join(s.PKI(), name+".kubeconfig")

	return path, s.kubeconfig(path, c)
}

// PKI returns the directory of certificates: ca.crt, admin.crt, service-account.key and those of
// identities.
func (s *Server) PKI() string { return filepath.Join(s.opts.Dir, "pki") }

func (s *Server) kubeconfig(path string, user pair) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["lab"] = &clientcmdapi.Cluster{
		Server: "https://" + s.access.Address.String(), CertificateAuthorityData: s.access.Authority,
	}
	c.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.cert, ClientKeyData: user.key}
	c.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "user"}
	c.CurrentContext = "lab"

	b, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}

	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}

	return nil
}

// await waits until the server is ready and has created the default namespace, which happens some
// time later.
func (s *Server) await(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.RestConfig())
	if err != nil {
		return err
	}

	return s.apiserver.Await(ctx, "kube-apiserver", func() error {
		if !s.etcd.Alive() {
			return fmt.Errorf("etcd has ended")
		}

		if _, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}

		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})

		return err
	})
}
