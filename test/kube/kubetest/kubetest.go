// Package kubetest gives a test a real API server.
package kubetest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// Binary builds the API server in the machine's cache. With -short it skips the test if that would
// take minutes.
func Binary(t testing.TB) string {
	t.Helper()

	cache := kube.CacheDir()
	if testing.Short() {
		if err := kube.Built(cache); err != nil {
			t.Skipf("-short, and the API server is not built yet: %v", err)
		}
	}

	path, err := kube.Build(t.Context(), cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}

	return path
}

// Start runs an API server, with the platform's etcd, until the test ends. With Shared tests it may
// be one that earlier tests have used.
func Start(t testing.TB) *kube.Server {
	t.Helper()
	tether.Check(t)

	if err := platform.Default(t.Output()); err != nil {
		t.Fatal(err)
	}

	idle.mu.Lock()
	keep := idle.keep
	idle.mu.Unlock()

	if keep {
		s, err := idle.take(t.Context(), Binary(t))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := idle.leave(s); err != nil {
				t.Error(err)
			}
		})

		return s.Server
	}

	server, err := kube.Start(t.Context(), kube.Options{Dir: t.TempDir(), Binary: Binary(t)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})

	return server
}

// Link is a client's connection to an API server, which a test can cut.
type Link struct {
	mu    sync.Mutex // guards all below
	isCut bool
	conns []net.Conn
}

// Config returns a client configuration that uses the link.
func (l *Link) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = l.dial

	return config
}

func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.isCut {
		return nil, errors.New("cut")
	}

	var d net.Dialer

	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}

	return conn, err
}

// Cut closes all connections and refuses new ones until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.isCut = true
	for _, c := range l.conns {
		c.Close()
	}

	l.conns = nil
}

// Mend permits connections again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.isCut = false
}

// Token returns a client's configuration with a token of the ServiceAccount, as kubelet requests one for
// a pod on the node. If node is "", the token is bound to no pod.
func Token(t testing.TB, admin *rest.Config, namespace, account, node string) *rest.Config {
	t.Helper()

	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}

	request := &authenticationv1.TokenRequest{}

	if node != "" {
		pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: account, HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}

	got, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	c := rest.CopyConfig(admin)
	c.CertData, c.KeyData, c.BearerToken = nil, nil, got.Status.Token

	return c
}
