package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/agent/readiness"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// listen listens on the metrics address. It returns nil if none is configured.
func (c Config) listen(log *slog.Logger) (net.Listener, error) {
	if c.MetricsAddr == "" {
		return nil, nil
	}

	return endpoint.Listen(c.MetricsAddr, c.MetricsTLS, log)
}

// serveHTTP serves the status page, /metrics, /healthz and /readyz on l until ctx ends. l is nil if
// nothing is served.
func (c Config) serveHTTP(
	ctx context.Context,
	l net.Listener,
	r *readiness.Readiness,
	metrics prometheus.Gatherer,
	status *page.Page,
) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.MetricsTLS.Protect(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})))
	status.Register(mux, c.MetricsTLS.Protect)
	r.Register(mux)

	return endpoint.Serve(ctx, l, mux)
}

// Wait answers /readyz, and "ovnkube status", until ctx ends, for an agent that cannot start yet.
// why returns the reason. The configuration may be invalid.
func (c Config) Wait(ctx context.Context, why func() string, log *slog.Logger) error {
	if err := status.Complete(c.RunDir, status.Record{Node: c.NodeName, Paths: c.paths()}); err != nil {
		log.Warn("cannot write the record for ovnkube status", "error", err)
	}

	l, err := c.listen(log)
	if err != nil || l == nil {
		return err
	}

	r := readiness.New(log)
	r.Complete()
	r.Add(why)

	mux := http.NewServeMux()
	r.Register(mux)

	return endpoint.Serve(ctx, l, mux)
}
