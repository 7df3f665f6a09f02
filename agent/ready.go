package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// readiness collects the missing items of all parts. The zero value is not usable.
type readiness struct {
	log     *slog.Logger
	changed loop.Signal

	mu      sync.Mutex // guards the following fields
	parts   []func() string
	faults  func() []string // of the environment, which do not make the node unready
	started bool            // the parts are registered
	start   string          // what the start waits for, or ""
}

func newReadiness(log *slog.Logger) *readiness {
	return &readiness{log: log, changed: loop.NewSignal()}
}

// add registers a part: a function that returns what it lacks, or "".
func (r *readiness) add(part func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, part)
}

// complete ends the start: from now on, the parts are checked.
func (r *readiness) complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
}

// starting records what the start waits for; "" clears it.
func (r *readiness) starting(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why != r.start && why != "" {
		r.log.Warn("waiting", "for", why)
	}
	r.start = why
}

// degraded returns the lines about faults of the node's environment.
func (r *readiness) degraded() []string {
	r.mu.Lock()
	faults := r.faults
	r.mu.Unlock()
	if faults == nil {
		return nil
	}
	return faults()
}

// watch registers the function that returns the lines about faults of the node's environment.
func (r *readiness) watch(faults func() []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = faults
}

// missing returns all missing items, in the order of the parts.
func (r *readiness) missing() []string {
	r.mu.Lock()
	parts, started, start := r.parts, r.started, r.start
	r.mu.Unlock()
	var out []string
	if !started {
		out = append(out, cmp.Or(start, "starting"))
	}
	for _, p := range parts {
		if s := p(); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// listen listens on the metrics address; it returns nil if there is none.
func (c Config) listen(log *slog.Logger) (net.Listener, error) {
	if c.MetricsAddr == "" {
		return nil, nil
	}
	return endpoint.Listen(c.MetricsAddr, c.MetricsTLS, log)
}

// serveHTTP serves the status page, /metrics, /healthz and /readyz until ctx ends.
func (c Config) serveHTTP(ctx context.Context, l net.Listener, r *readiness, metrics prometheus.Gatherer, status *page.Page) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", c.MetricsTLS.Protect(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})))
	status.Register(mux, c.MetricsTLS.Protect)
	r.register(mux)
	return endpoint.Serve(ctx, l, mux)
}

// register registers /healthz and /readyz.
func (r *readiness) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := r.missing(); len(missing) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, strings.Join(missing, "\n"))
		} else {
			fmt.Fprintln(w, "ok")
		}
		for _, fault := range r.degraded() {
			fmt.Fprintln(w, fault)
		}
	})
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
	r := newReadiness(log)
	r.complete()
	r.add(why)
	mux := http.NewServeMux()
	r.register(mux)
	return endpoint.Serve(ctx, l, mux)
}
