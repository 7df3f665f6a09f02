package healthcheck

import (
	"fmt"
	"log/slog"
	"net"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/listener/listenertest"
)

func dialPort(port int) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)) }
}

// All hosts that can reach the node can reach these ports: idle connections must not exhaust memory
// or descriptors.
func TestConnectionsAreBounded(t *testing.T) {
	t.Run("node", func(t *testing.T) {
		port, l := freePort(t)
		l.Close()

		yes := func() bool { return true }

		p := Proxy{Addr: fmt.Sprintf("127.0.0.1:%d", port), Healthy: yes, Leaving: yes, Log: slog.New(slog.DiscardHandler)}
		go p.Run(t.Context()) //nolint:errcheck // it ends with the test

		for listenertest.Ask(dialPort(port)) != nil && t.Context().Err() == nil {
			continue // not listening yet
		}

		listenertest.Flood(t, maxConnections, dialPort(port))
	})
	t.Run("service", func(t *testing.T) {
		r := newRig(t)
		port, l := freePort(t)
		l.Close()
		r.set(port, []discoveryv1.Endpoint{endpoint("10.244.1.5", "node1", true)}...)
		until(t, port, "200 ns/web 1 true 1 application/json")
		listenertest.Flood(t, maxConnections, dialPort(port))
	})
}
