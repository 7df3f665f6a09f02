package kube

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// RestConfig is for a client in this process, as cluster administrator. It
// dials inside the server's network namespace, so it works from anywhere.
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

// Kubeconfig writes the same access to a file, for programs that reach the
// server by its advertised address.
func (s *Server) Kubeconfig(path string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["lab"] = &clientcmdapi.Cluster{
		Server: "https://" + s.access.Address.String(), CertificateAuthorityData: s.access.Authority,
	}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: s.access.Cert, ClientKeyData: s.access.Key,
	}
	c.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "admin"}
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

// await returns when the server is ready and has made the default namespace,
// which it does some time later.
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
