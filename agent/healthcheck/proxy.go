package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/listener"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Proxy is the health check of the whole node, like that of kube-proxy on port 10256. Load
// balancers of externalTrafficPolicy Cluster use it.
type Proxy struct {
	Addr    string      // "": not served
	Healthy func() bool // whether Services are served completely
	Leaving func() bool // whether the node should get no new clients, because it is deleted or drained
	Log     *slog.Logger
}

// Run serves /healthz and /livez until ctx ends. It retries a port that is in use until it is free:
// kube-proxy may still run.
func (p Proxy) Run(ctx context.Context) error {
	if p.Addr == "" {
		<-ctx.Done()
		return nil
	}

	return loop.Run(ctx, loop.Options{
		Name: "proxy health check", Wake: loop.NewSignal(), Apply: p.serve, Log: p.Log,
	})
}

// serve serves until ctx ends or the port cannot be used.
func (p Proxy) serve(ctx context.Context) error {
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return fmt.Errorf("serve proxy health check: %w", err)
	}

	srv := listener.NewPool(maxConnections).Server(p.handler(), listener.Timeouts{})

	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()

	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve proxy health check on %s: %w", p.Addr, err)
	}

	return nil
}

// handler returns the handler: /livez is about Healthy alone, /healthz also about Leaving. The
// fields of the body are kube-proxy's.
func (p Proxy) handler() http.Handler {
	type status struct {
		LastUpdated  time.Time `json:"lastUpdated"`
		CurrentTime  time.Time `json:"currentTime"`
		NodeEligible *bool     `json:"nodeEligible,omitempty"`
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		reply(w, p.Healthy(), status{LastUpdated: now, CurrentTime: now})
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		now, eligible := time.Now(), !p.Leaving()
		reply(w, p.Healthy() && eligible, status{LastUpdated: now, CurrentTime: now, NodeEligible: &eligible})
	})

	return mux
}
