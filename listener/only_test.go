package listener_test

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/source"
)

// Every HTTP server of the product is bounded: it comes from Pool.Server.
func TestOnlyListenerMakesServers(t *testing.T) {
	for _, use := range source.Uses(t, "..", "net/http", "Server", "Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS") {
		if !strings.HasPrefix(use, "listener/") {
			t.Errorf("%s: use listener.Pool.Server", use)
		}
	}
}
