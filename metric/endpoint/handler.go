package endpoint

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages is the content of the pages that Handler serves. Both functions are required, and may be
// called concurrently.
type Pages struct {
	Collectors []prometheus.Collector // of /metrics, beside those of Go and of the process
	Ready      func() error           // returns all that is missing, or nil if the process is ready
	Failing    func() []string        // returns lines about objects that fail while the process is ready
	TLS        TLS                    // protects /metrics
}

// Handler serves /metrics, /healthz and /readyz. /healthz always says "ok". /readyz has status 503
// and a line for everything that is missing, or says "ok" and has a line for each failing object.
func Handler(p Pages) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(p.Collectors...)

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.TLS.Protect(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}

		fmt.Fprintln(w, "ok")

		for _, line := range p.Failing() {
			fmt.Fprintln(w, line)
		}
	})

	return mux
}
