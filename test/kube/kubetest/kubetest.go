// Package kubetest gives a test a real API server.
package kubetest

import (
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
)

// Binary builds the API server in the machine's cache. With -short it skips the test if that would
// take minutes.
func Binary(t *testing.T) string {
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

// Start runs an API server until the test ends.
func Start(t *testing.T) *kube.Server {
	t.Helper()
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
