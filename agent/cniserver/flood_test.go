package cniserver

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/listener/listenertest"
)

func TestConnectionsAreBounded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cni", "cni.sock")
	s := New(Options{Socket: socket, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())

	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()

	<-ready
	listenertest.Flood(t, maxConnections, func() (net.Conn, error) { return net.Dial("unix", socket) })
	cancel()

	if err := <-done; err != nil {
		t.Error(err)
	}
}
